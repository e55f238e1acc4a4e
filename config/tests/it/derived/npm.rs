//! `.npmrc`.

use netbox_config::derived::{Setting, npm};

use super::{page, show};

fn resolve(variable: Option<&str>, texts: &[(&str, &str)]) -> String {
    let files: Result<Vec<_>, _> = texts.iter().map(|(path, text)| npm::parse(&page(path, text))).collect();
    let variable = variable.map(|value| Setting::of_environment("npm_config_registry", value));
    show(files.and_then(|files| npm::resolve(variable, &files)))
}

#[test]
fn a_registry_is_the_value_of_its_key() {
    for (text, expected) in [
        ("", "default"),
        ("registry=https://npm.example.com/", "npm.example.com:443 .npmrc:1"),
        ("\u{feff}registry=https://npm.example.com/", "npm.example.com:443 .npmrc:1"),
        ("; comment\n# comment\r\n  registry = https://npm.example.com/  \r\n", "npm.example.com:443 .npmrc:3"),
        ("registry=\"https://npm.example.com/\"", "npm.example.com:443 .npmrc:1"),
        ("registry='https://npm.example.com/'", "npm.example.com:443 .npmrc:1"),
        ("\"registry\" = http://npm.example.com:4873/x ; comment", "npm.example.com:4873 .npmrc:1"),
        ("registry=https://old.example.com/\nregistry=https://npm.example.com/", "npm.example.com:443 .npmrc:2"),
        ("@acme:registry=https://acme.example.com/", "acme.example.com:443 .npmrc:1; default"),
        (
            "//npm.example.com/:_authToken=${TOKEN}\nregistry=https://user:s3cret@npm.example.com/",
            "npm.example.com:443 .npmrc:2",
        ),
        // What is no key of npm's own, or stands in a section, means nothing to npm.
        ("registry[]=https://npm.example.com/", "default"),
        ("[x]\nregistry=https://npm.example.com/", "default"),
        ("registries=https://npm.example.com/", "default"),
        ("Registry=https://npm.example.com/", "default"),
        ("registry", "default"),
    ] {
        assert_eq!(resolve(None, &[(".npmrc", text)]), expected, "{text}");
    }
}

#[test]
fn the_nearer_word_counts_for_each_key() {
    let project = (".npmrc", "registry=https://project.example.com/\n@a:registry=https://a.example.com/");
    let user = ("/home/me/.npmrc", "registry=https://user.example.com/\n@a:registry=https://old.example.com/");
    let machine = ("/etc/npmrc", "@b:registry=https://b.example.com/");
    for (variable, texts, expected) in [
        (
            None,
            vec![project, user, machine],
            "project.example.com:443 .npmrc:1; a.example.com:443 .npmrc:2; b.example.com:443 /etc/npmrc:1",
        ),
        (None, vec![user], "user.example.com:443 /home/me/.npmrc:1; old.example.com:443 /home/me/.npmrc:2"),
        (
            Some("https://env.example.com/"),
            vec![machine],
            "env.example.com:443 npm_config_registry; b.example.com:443 /etc/npmrc:1",
        ),
        (None, vec![machine], "b.example.com:443 /etc/npmrc:1; default"),
    ] {
        assert_eq!(resolve(variable, &texts), expected);
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_shows_no_secret() {
    for (text, expected) in [
        ("registry=", "error .npmrc:1: not a URL, or one of a form that netbox does not read"),
        ("\nregistry=npm.example.com", "error .npmrc:2: not a URL, or one of a form that netbox does not read"),
        (
            "registry=https://${HOST}/",
            "error .npmrc:1: the host is in a variable; write it out, or allow it by a rule of its own",
        ),
        ("registry=https://s3cret@a@npm.example.com/", "error .npmrc:1: it is not clear what the host of the URL is"),
        (
            "registry=\"https:\\u002f\\u002fnpm.example.com\"",
            "error .npmrc:1: not a URL, or one of a form that netbox does not read",
        ),
        (
            "registry=https://*.example.com/",
            "error .npmrc:1: the URL has no host that netbox can read: `*` is no character of a host name",
        ),
        (
            "registry=http://localhost:4873/",
            "not .npmrc:1: `localhost` is no public name; allow it by a rule of its own",
        ),
    ] {
        assert_eq!(resolve(None, &[(".npmrc", text)]), expected, "{text}");
    }
}
