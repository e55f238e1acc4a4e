//! A project on the test host: a repository with a policy file, in the home folder of a user of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::Run;
use crate::world::World;

/// What a project's file is called.
pub const FILE: &str = "netbox.toml";

/// A home folder with a repository in it.
#[derive(Debug)]
pub struct Project<'w> {
    world: &'w World,
    /// The home folder: what the user has configured, and what netbox remembers, is in no other test's way.
    pub home: PathBuf,
    /// The repository's root.
    pub folder: PathBuf,
}

impl<'w> Project<'w> {
    /// Without any policy file.
    pub fn new(world: &'w World) -> Self {
        let home = world.fresh_path("home");
        let folder = home.join("project");
        fs::create_dir_all(folder.join(".git")).expect("own folder");
        Self { world, home, folder }
    }

    /// With this as its `netbox.toml`.
    pub fn with(world: &'w World, text: &str) -> Self {
        let project = Self::new(world);
        project.write(FILE, text);
        project
    }

    /// With this as its `netbox.toml`, which is trusted.
    pub fn trusted(world: &'w World, text: &str) -> Self {
        let project = Self::with(world, text);
        project.words().exec(&["trust"]).exits_with(0);
        project
    }

    /// With this as the user's own policy file.
    pub fn and_user(self, text: &str) -> Self {
        let folder = self.home.join(".config/netbox");
        fs::create_dir_all(&folder).expect("own folder");
        fs::write(folder.join("config.toml"), text).expect("own folder");
        self
    }

    /// A path below the repository's root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Writes a file there, and the folders that it takes.
    pub fn write(&self, relative: &str, text: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("below the root")).expect("own folder");
        fs::write(path, text).expect("own folder");
    }

    /// Without netbox.
    pub fn bare(&self) -> Run<'w> {
        self.at_home(self.world.bare())
    }

    /// `netbox run FLAGS -- …` in the root.
    pub fn netbox(&self, flags: &[&str]) -> Run<'w> {
        self.at_home(self.world.netbox(flags))
    }

    /// `netbox …` in the root.
    pub fn words(&self) -> Run<'w> {
        self.at_home(self.world.netbox_words())
    }

    fn at_home(&self, run: Run<'w>) -> Run<'w> {
        run.env("HOME", &self.home).folder(&self.folder)
    }
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the tests' own paths are text")
}
