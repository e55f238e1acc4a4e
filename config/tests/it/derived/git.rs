//! git's configuration.

use netbox_config::derived::git;

use super::{page, show};

fn resolve(repository: &str, user: &str) -> String {
    let repository = git::parse(&page("config", repository)).map(|file| [file]);
    let user = git::parse(&page("gitconfig", user)).map(|file| [file]);
    show(repository.and_then(|repository| git::resolve(&repository, &user?)))
}

#[test]
fn a_remote_is_a_url_an_ssh_address_or_a_path() {
    for (url, expected) in [
        ("https://git.example.com/a/b.git", "git.example.com:443 config:2"),
        ("https://me:s3cret@git.example.com/a", "git.example.com:443 config:2"),
        ("http://git.example.com/a", "git.example.com:80 config:2"),
        ("ssh://git@git.example.com:2222/a", "git.example.com:2222 config:2"),
        ("ssh://git@git.example.com/a", "git.example.com:22 config:2"),
        ("git+ssh://git@git.example.com/a", "git.example.com:22 config:2"),
        ("git://git.example.com/a", "git.example.com:9418 config:2"),
        ("git@git.example.com:a/b.git", "git.example.com:22 config:2"),
        ("git.example.com:a", "git.example.com:22 config:2"),
        ("/srv/git/a.git", ""),
        ("../a.git", ""),
        ("a/b:c", ""),
        ("file:///srv/git/a.git", ""),
        ("\"https://git.example.com/a b\" # comment", "git.example.com:443 config:2"),
        ("https://git.exa\\\nmple.com/a", "git.example.com:443 config:2"),
        ("git@work:a/b.git", "not config:2: `work` is no public name; allow it by a rule of its own"),
        (
            "ssh://git@10.0.0.5/a",
            "not config:2: an address, and a derived preset stands for names alone; allow it by a rule of its own",
        ),
        ("ext::sh -c x", "not config:2: a remote helper, and where that connects to netbox does not know"),
        ("rsync://git.example.com/a", "not config:2: `rsync` is no scheme that netbox knows a port for"),
        ("[::1]:a", "error config:2: it is not clear what the host of the URL is"),
        ("a@s3cret@git.example.com:b", "error config:2: it is not clear what the host of the URL is"),
        (
            "-oProxyCommand=x:a",
            "error config:2: the URL has no host that netbox can read: `=` is no character of a host name",
        ),
    ] {
        assert_eq!(resolve(&format!("[remote \"origin\"]\n\turl = {url}\n"), ""), expected, "{url}");
    }
}

#[test]
fn all_remotes_and_submodules_count_and_other_keys_do_not() {
    let text = "[core]\n\tbare = false\n\tsshCommand = ssh -p 1\n[REMOTE \"a\"]\n\tURL = https://a.example.com/x\n\tfetch = +refs/heads/*\n\
                [remote \"b\"] url = https://b.example.com/x\n[remote.c]\nurl=https://c.example.com\n\
                [remote \"a\"]\npushurl = git@push.example.com:x\n[submodule \"lib/x\"]\n\tactive = true\n\turl = https://sub.example.com/x\n\
                [branch \"main\"]\n\tremote = https://no.example.com/\n[remote \"d\"]\nurl\n";
    assert_eq!(
        resolve(text, ""),
        "a.example.com:443 config:5; push.example.com:22 config:11; b.example.com:443 config:7; c.example.com:443 config:9; \
         sub.example.com:443 config:14"
    );
}

#[test]
fn urls_are_rewritten_as_git_does() {
    let origin = "[remote \"origin\"]\n\turl = https://git.example.com/a\n";
    for (repository, user, expected) in [
        (
            origin.to_owned(),
            "[url \"git@ssh.example.com:\"]\n\tinsteadOf = https://git.example.com/",
            "ssh.example.com:22 config:2",
        ),
        (
            origin.to_owned(),
            "[url \"https://short.example.com/\"]\ninsteadOf = https://\n[url \"https://long.example.com/\"]\ninsteadOf = https://git.",
            "long.example.com:443 config:2",
        ),
        (
            origin.to_owned(),
            "[url \"git@push.example.com:\"]\n\tpushInsteadOf = https://git.example.com/",
            "git.example.com:443 config:2; push.example.com:22 config:2",
        ),
        (
            format!("{origin}\tpushurl = https://own.example.com/a\n"),
            "[url \"git@push.example.com:\"]\n\tpushInsteadOf = https://git.example.com/",
            "git.example.com:443 config:2; own.example.com:443 config:3",
        ),
        (
            "[remote \"o\"]\nurl = gh:a/b\n[url \"https://hub.example.com/\"]\ninsteadOf = gh:".to_owned(),
            "",
            "hub.example.com:443 config:2",
        ),
        // Remotes of the user's own are of no repository.
        (origin.to_owned(), "[remote \"x\"]\nurl = https://no.example.com/", "git.example.com:443 config:2"),
    ] {
        assert_eq!(resolve(&repository, user), expected, "{repository} {user}");
    }
}

#[test]
fn what_git_would_not_read_is_an_error() {
    let text = |what| format!("error config:2: not valid: {what}");
    for (line, expected) in [
        ("[remote \"x]", text("a section that is not `[name]` or `[name \"more\"]`")),
        ("[remote \"x\" y]", text("a section that is not `[name]` or `[name \"more\"]`")),
        ("url = \"a", text("a variable that is not `name = value`")),
        ("url = a\\q", text("a variable that is not `name = value`")),
        ("url x", text("a variable that is not `name = value`")),
        ("= x", text("neither a section, a variable nor a comment")),
    ] {
        assert_eq!(resolve(&format!("[remote \"a\"]\n{line}\n"), ""), expected, "{line}");
    }
}

#[test]
fn files_that_are_taken_in_are_known_and_in_a_repository_not_read() {
    let text = "[include]\n\tpath = ~/more\n[includeIf \"gitdir:~/work/\"]\n\tpath = work\n";
    let file = git::parse(&page("gitconfig", text)).unwrap();
    assert_eq!(file.includes().collect::<Vec<_>>(), ["~/more", "work"]);
    assert_eq!(resolve("", text), "");
    let left_out =
        "not config:2: another file that the repository's configuration takes in, which netbox does not read";
    assert_eq!(resolve(text, ""), left_out);
}
