//! apt's lists of sources.

use netbox_config::derived::apt;

use super::{page, show};

#[test]
fn one_line_lists() {
    for (text, expected) in [
        ("# deb http://no.example.com/ x main\n\n", ""),
        ("deb http://deb.example.com/debian stable main # comment", "deb.example.com:80 a.list:1"),
        (
            "deb [arch=amd64 signed-by=/etc/keys/a.gpg] https://deb.example.com x main\ndeb-src http://src.example.com/ x main",
            "deb.example.com:443 a.list:1; src.example.com:80 a.list:2",
        ),
        ("deb http://deb.example.com/ a main\ndeb http://deb.example.com/ b main", "deb.example.com:80 a.list:1"),
        ("deb file:/srv/debian x main\ndeb cdrom:[Debian]/ x main\ndeb copy:/srv x main", ""),
        ("deb http://user:s3cret@deb.example.com/ x main", "deb.example.com:80 a.list:1"),
        (
            "deb mirror+http://mirrors.example.com/list x main",
            "mirrors.example.com:80 a.list:1; not a.list:1: a list of mirrors, which are not read; allow the mirrors by rules of their own",
        ),
        ("deb ftp://ftp.example.com/ x main", "not a.list:1: `ftp` is no scheme that netbox knows a port for"),
        ("\ndebs http://deb.example.com/ x main", "error a.list:2: not valid: neither `deb` nor `deb-src` with a URI"),
        ("deb [arch=amd64 http://deb.example.com/", "error a.list:1: not valid: options without their `]`"),
        ("deb [a=b]", "error a.list:1: not valid: a line without a URI"),
        ("deb deb.example.com x main", "error a.list:1: not a URL, or one of a form that netbox does not read"),
    ] {
        assert_eq!(show(apt::parse_list(&page("a.list", text))), expected, "{text}");
    }
}

#[test]
fn deb822_lists() {
    for (text, expected) in [
        ("", ""),
        (
            "Types: deb deb-src\nURIs: http://deb.example.com/debian\n  https://two.example.com/\n# comment\n three\nSuites: x\n",
            "error a.sources:5: not a URL, or one of a form that netbox does not read",
        ),
        (
            "Types: deb\nuris: http://deb.example.com/debian https://two.example.com/\nSuites: x\n\nTypes: deb\nURIs:\n http://three.example.com\n",
            "deb.example.com:80 a.sources:2; two.example.com:443 a.sources:2; three.example.com:80 a.sources:7",
        ),
        (
            "URIs: http://off.example.com/\nEnabled: no\n\nURIs: http://on.example.com/\nEnabled: yes",
            "on.example.com:80 a.sources:4",
        ),
        ("Types: deb\nSigned-By:\n -----BEGIN PGP\n .\n x://y\nURIs: file:/srv/x", ""),
        ("Types: deb\nURIs", "error a.sources:2: not valid: a line without a field"),
    ] {
        assert_eq!(show(apt::parse_sources(&page("a.sources", text))), expected, "{text}");
    }
}
