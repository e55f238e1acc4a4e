//! Lock files.

use netbox_config::derived::lockfile;

use super::{page, show};

#[test]
fn each_lock_file_names_the_hosts_of_its_packages() {
    let cargo_registry = "not Cargo.lock:4: a registry by its name; `@cargo` stands for where it is";
    for (name, text, expected) in [
        (
            "package-lock.json",
            r#"{"lockfileVersion": 3, "packages": {
                "": {"version": "1.0.0", "dependencies": {"resolved": "^1.0.0"}},
                "node_modules/a": {"resolved": "https://npm.example.com/a/-/a.tgz", "integrity": "x"},
                "node_modules/b": {"resolved": "git+ssh://git@git.example.com/b.git#0"},
                "node_modules/c": {"resolved": "packages/c", "link": true},
                "node_modules/d": {"resolved": "https:\/\/npm.example.com\/d.tgz", "funding": {"url": "https://no.example.com"}}}}"#,
            "npm.example.com:443 package-lock.json:3; git.example.com:22 package-lock.json:4",
        ),
        (
            "npm-shrinkwrap.json",
            r#"{"dependencies": {"a": {"version": "git+https://git.example.com/a#0"}}}"#,
            "git.example.com:443 npm-shrinkwrap.json:1",
        ),
        (
            "yarn.lock",
            "# yarn lockfile v1\n\na@^1:\n  version \"1.0.0\"\n  resolved \"https://yarn.example.com/a/-/a-1.tgz#0\"\n",
            "yarn.example.com:443 yarn.lock:5",
        ),
        (
            "yarn.lock",
            "\"a@npm:1\":\n  resolution: \"a@npm:1.0.0::__archiveUrl=https%3A%2F%2Ffiles.example.com%2Fa.tgz\"\n\
             \"b@x\":\n  resolution: \"@s/b@https://git.example.com/b.git#commit=0\"\n\"c@x\":\n  resolution: \"c@workspace:.\"\n",
            "files.example.com:443 yarn.lock:2; git.example.com:443 yarn.lock:4",
        ),
        (
            "pnpm-lock.yaml",
            "packages:\n  a@1:\n    resolution: {integrity: x, tarball: https://npm.example.com/a.tgz}\n  b@1:\n    resolution:\n      \
             tarball: 'https://b.example.com/b.tgz'\n  c@1:\n    resolution: {commit: 0, repo: https://git.example.com/c.git, type: git}\n  \
             d@1:\n    resolution: {tarball: file:d.tgz}\n",
            "npm.example.com:443 pnpm-lock.yaml:3; b.example.com:443 pnpm-lock.yaml:6; git.example.com:443 pnpm-lock.yaml:8",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = \"a\"\nfiles = []\n[package.source]\ntype = \"legacy\"\nurl = \"https://pypi.example.com/simple\"\n",
            "pypi.example.com:443 poetry.lock:6",
        ),
        ("poetry.lock", "[[package]]\nname = \"a\"\n", ""),
        (
            "uv.lock",
            "[[package]]\nname = \"a\"\nsource = { registry = \"https://pypi.example.com/simple\" }\n\
             sdist = { url = \"https://files.example.com/a.tar.gz\", hash = \"x\" }\nwheels = [\n  { url = \"https://files.example.com/a.whl\" },\n]\n\
             [[package]]\nname = \"b\"\nsource = { git = \"https://git.example.com/b?rev=1#0\" }\n[[package]]\nsource = { editable = \".\" }\n",
            "files.example.com:443 uv.lock:4; pypi.example.com:443 uv.lock:3; git.example.com:443 uv.lock:10",
        ),
        (
            "Pipfile.lock",
            r#"{"_meta": {"sources": [{"name": "x", "url": "https://u:s3cret@pypi.example.com/simple"}]},
                "default": {"a": {"git": "https://git.example.com/a"}, "b": {"file": "https://files.example.com/b.whl"}}}"#,
            "pypi.example.com:443 Pipfile.lock:1; git.example.com:443 Pipfile.lock:2; files.example.com:443 Pipfile.lock:2",
        ),
        (
            "Cargo.lock",
            "version = 4\n[[package]]\nname = \"a\"\nsource = \"registry+https://registry.example.com/index\"\n[[package]]\nname = \"b\"\n\
             source = \"git+https://git.example.com/b?branch=main#0\"\n[[package]]\nsource = \"sparse+https://corp.example.com/i/\"\n",
            &format!("git.example.com:443 Cargo.lock:7; corp.example.com:443 Cargo.lock:9; {cargo_registry}"),
        ),
        (
            "composer.lock",
            r#"{"packages": [{"source": {"type": "git", "url": "https://git.example.com/a.git"},
                "dist": {"url": "https://api.example.com/a.zip"}, "funding": [{"url": "https://no.example.com"}]}]}"#,
            "git.example.com:443 composer.lock:1; api.example.com:443 composer.lock:2",
        ),
        (
            "Gemfile.lock",
            "GIT\n  remote: https://git.example.com/a.git\n  revision: 0\nPATH\n  remote: .\nGEM\n  remote: https://gems.example.com/\n  specs:\n",
            "git.example.com:443 Gemfile.lock:2; gems.example.com:443 Gemfile.lock:7",
        ),
        ("package-lock.json", "{", "error package-lock.json:1: not valid: it ends too early"),
        ("Cargo.lock", "[[package]]\nsource", "error Cargo.lock:2: not valid: it is no TOML"),
        (
            "yarn.lock",
            "a@^1:\n  resolved \"https://*.example.com/a.tgz\"",
            "error yarn.lock:2: the URL has no host that netbox can read: `*` is no character of a host name",
        ),
        ("go.sum", "https://no.example.com", ""),
    ] {
        assert_eq!(show(lockfile::parse(name, &page(name, text))), expected, "{name}: {text}");
    }
}
