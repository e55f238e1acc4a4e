//! go's variables.

use netbox_config::derived::go::{self, GoVariables};

use super::{page, show};

#[test]
fn proxies_and_the_checksum_database() {
    let direct = "not env:1: `direct`: where a module itself lies is not known before go asks";
    for (text, expected) in [
        ("", "default".to_owned()),
        (
            "GOPROXY=https://proxy.example.com,direct\nGOSUMDB=sum.example.com",
            format!("proxy.example.com:443 env:1; sum.example.com:443 env:2; {direct}"),
        ),
        (
            "GOPROXY=https://a.example.com|http://b.example.com:8080/x,off\nGOSUMDB=off",
            "a.example.com:443 env:1; b.example.com:8080 env:1".to_owned(),
        ),
        ("GOPROXY=direct\nGOSUMDB=off", direct.to_owned()),
        (
            "GOPROXY=off\nGOSUMDB=sum.example.com+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8 https://mirror.example.com",
            "mirror.example.com:443 env:2".to_owned(),
        ),
        ("GOPROXY=proxy.example.com\nGOSUMDB=off", "proxy.example.com:443 env:1".to_owned()),
        ("GOPROXY=file:///srv/go\nGOSUMDB=off", String::new()),
        ("GOPROXY=\nGOSUMDB=sum.example.com", "sum.example.com:443 env:2; default".to_owned()),
        ("GOPROXY=https://user:s3cret@p.example.com\nGOSUMDB=off", "p.example.com:443 env:1".to_owned()),
        (
            "GOPROXY=https://$HOST\nGOSUMDB=off",
            "error env:1: the host is in a variable; write it out, or allow it by a rule of its own".to_owned(),
        ),
    ] {
        assert_eq!(show(go::resolve(&go::parse(&page("env", text)))), expected, "{text}");
    }
}

#[test]
fn what_is_set_nearer_counts() {
    let near = go::parse(&page("near", "GOPROXY=https://near.example.com"));
    let far = GoVariables::of_answer("https://far.example.com,direct\nsum.example.com\n", "go env");
    assert_eq!(show(go::resolve(&near.or(far))), "near.example.com:443 near:1; sum.example.com:443 go env");
    assert!(!GoVariables::of_answer("\n\n", "go env").are_complete());
}
