//! What tools have answered, for a day: asking one takes up to seconds.
//!
//! The answers lie in `$XDG_STATE_HOME/netbox/derived`, which is read-only inside a sandbox. One that cannot be read, is of
//! another question or tool, or could have been written by somebody else, is none.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::geteuid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tool::Tool;
use crate::policy::{places, read};

/// How long an answer counts.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// No answer is larger.
const LARGEST: u64 = 1 << 16;

/// The directory with the answers.
#[derive(Debug)]
pub struct Answers {
    directory: Option<PathBuf>,
}

/// What was asked: of which tool, how, and with which variables.
#[derive(Debug)]
pub struct Key {
    file: String,
    digest: String,
}

impl Key {
    /// The question `what` about a preset.
    pub fn new(
        preset: &str,
        what: &str,
        tool: &Tool,
        environment: &[(String, std::ffi::OsString)],
        known: &[String],
    ) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(env!("CARGO_PKG_VERSION").as_bytes());
        part(tool.path.as_os_str().as_encoded_bytes());
        part(tool.state.as_bytes());
        for (name, value) in environment {
            part(name.as_bytes());
            part(value.as_encoded_bytes());
        }
        known.iter().for_each(|host| part(host.as_bytes()));
        Self { file: format!("{preset}-{what}.json"), digest: read::hex(&hash.finalize()) }
    }
}

impl Answers {
    /// Those of this user.
    pub fn of_user() -> Self {
        Self { directory: places::state().map(|state| state.join("derived")) }
    }

    /// The answer, if there is one that counts.
    pub fn recall(&self, key: &Key) -> Option<Vec<String>> {
        let directory = self.directory.as_ref()?;
        let handle = read::directory(directory).ok()?;
        let own = |metadata: &fs::Metadata| metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        if !own(&handle.metadata().ok()?) {
            return None;
        }
        let path = directory.join(&key.file);
        let (file, metadata) = read::open_regular(handle, OsStr::new(&key.file), &path).ok()??;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        let age = now().checked_sub(value["at"].as_u64()?)?;
        if !own(&metadata) || value["key"] != key.digest.as_str() || age >= AGE.as_secs() {
            return None;
        }
        value["hosts"].as_array()?.iter().map(|host| host.as_str().map(str::to_owned)).collect()
    }

    /// Keeps an answer, where that is possible: inside a sandbox it is not.
    pub fn remember(&self, key: &Key, hosts: &[String]) {
        let value = json!({ "at": now(), "key": key.digest, "hosts": hosts });
        let Some(directory) = &self.directory else { return };
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(value.to_string().as_bytes())?;
            file.persist(directory.join(&key.file))?;
            Ok(())
        };
        // It is asked again.
        let _ = write();
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
