//! `@maven`: the repositories that Maven takes artifacts from.
//!
//! Read: `repositories` and `pluginRepositories` of a `pom.xml` and its profiles, the same of the profiles in
//! `settings.xml`, and its `mirrors`. Central is a repository like any other that every project has; where it is, Maven
//! itself knows. (Maven's documentation: Settings Reference, POM Reference, Using Mirrors for Repositories.)

use roxmltree::{Document, Node, ParsingOptions};

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, Setting};

/// The repository that every project has.
const CENTRAL: &str = "central";

/// No file that a person wrote has more elements and texts.
const MOST_NODES: u32 = 1 << 17;

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MavenFile {
    repositories: Vec<Repository>,
    mirrors: Vec<Repository>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Repository {
    /// Its `id`; for a mirror what it is a mirror of.
    id: String,
    url: Setting,
}

/// Reads a `pom.xml` or a `settings.xml`.
///
/// # Errors
///
/// It is no XML, or has a document type: entities are not expanded.
pub fn parse(page: &Page) -> Result<MavenFile, Misread> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(page.text(), options).map_err(|error| {
        let line = usize::try_from(error.pos().row).unwrap_or(1).saturating_sub(1);
        let offset = page.lines().nth(line).map_or(0, |(offset, _)| offset);
        page.misread(offset, Fault::Syntax("it is no XML that netbox reads".into()))
    })?;
    let mut file = MavenFile::default();
    for node in document.descendants().filter(Node::is_element) {
        let (list, id) = match (node.tag_name().name(), parent(node)) {
            ("repository", "repositories") | ("pluginRepository", "pluginRepositories") => {
                (&mut file.repositories, "id")
            }
            ("mirror", "mirrors") => (&mut file.mirrors, "mirrorOf"),
            _ => continue,
        };
        let Some(url) = child(node, "url") else { continue };
        let id = child(node, id).map(|(text, _)| text.to_owned()).unwrap_or_default();
        list.push(Repository { id, url: Setting { value: url.0.to_owned(), source: page.source(url.1) } });
    }
    Ok(file)
}

fn parent<'a>(node: Node<'a, '_>) -> &'a str {
    node.parent_element().map(|parent| parent.tag_name().name()).unwrap_or_default()
}

/// The text of a child element, and where it stands.
fn child<'a>(node: Node<'a, '_>, name: &str) -> Option<(&'a str, usize)> {
    let child = node.children().find(|child| child.tag_name().name() == name)?;
    Some((child.text().unwrap_or_default().trim(), child.range().start))
}

/// The hosts of all repositories.
///
/// # Errors
///
/// The URL of one cannot be read.
pub fn resolve(settings: &[MavenFile], projects: &[MavenFile]) -> Result<Reading, Misread> {
    let mirrors: Vec<&Repository> = settings.iter().flat_map(|file| &file.mirrors).collect();
    let covers = |mirror: &&&Repository, id: &str| {
        let mut patterns = mirror.id.split(',').map(str::trim);
        patterns.clone().any(|pattern| pattern == "*" || pattern == id)
            && !patterns.any(|pattern| pattern.strip_prefix('!') == Some(id))
    };
    let is_mirrored = |id: &str| mirrors.iter().any(|mirror| covers(&mirror, id));
    let mut reading = Reading::default();
    let mut knows_central = is_mirrored(CENTRAL);
    mirrors.iter().try_for_each(|mirror| reading.take_setting(&mirror.url))?;
    for repository in settings.iter().chain(projects).flat_map(|file| &file.repositories) {
        knows_central |= repository.id == CENTRAL;
        if !is_mirrored(&repository.id) {
            reading.take_setting(&repository.url)?;
        }
    }
    reading.takes_default = !knows_central;
    Ok(reading)
}
