//! `settings.xml` and `pom.xml`.

use netbox_config::derived::maven;

use super::{page, show};

fn resolve(settings: &str, pom: &str) -> String {
    let read = |path, text: &str| match text {
        "" => Ok(Vec::new()),
        text => maven::parse(&page(path, text)).map(|file| vec![file]),
    };
    show(read("settings.xml", settings).and_then(|settings| maven::resolve(&settings, &read("pom.xml", pom)?)))
}

#[test]
fn repositories_and_mirrors() {
    let pom = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n<repositories>\n<repository><id>corp</id>\n<url>https://corp.example.com/m2</url></repository></repositories>\n<url>https://home.example.com</url></project>";
    let mirror = |of: &str| {
        format!(
            "<settings>\n<mirrors><mirror><mirrorOf>{of}</mirrorOf>\n<url> https://mirror.example.com/ </url></mirror></mirrors></settings>"
        )
    };
    for (settings, pom, expected) in [
        (String::new(), "", "default"),
        (String::new(), pom, "corp.example.com:443 pom.xml:4; default"),
        (mirror("central"), pom, "mirror.example.com:443 settings.xml:3; corp.example.com:443 pom.xml:4"),
        (mirror("*"), pom, "mirror.example.com:443 settings.xml:3"),
        (mirror("*,!corp"), pom, "mirror.example.com:443 settings.xml:3; corp.example.com:443 pom.xml:4"),
        (mirror("external:*"), pom, "mirror.example.com:443 settings.xml:3; corp.example.com:443 pom.xml:4; default"),
        (
            String::new(),
            "<project><profiles><profile><pluginRepositories><pluginRepository><id>central</id><url>https://c.example.com</url></pluginRepository></pluginRepositories></profile></profiles></project>",
            "c.example.com:443 pom.xml:1",
        ),
        (
            String::new(),
            "<project><distributionManagement><repository><url>https://no.example.com</url></repository></distributionManagement></project>",
            "default",
        ),
        (
            String::new(),
            "<project><repositories><repository><url>${repo.url}</url></repository></repositories></project>",
            "error pom.xml:1: not a URL, or one of a form that netbox does not read",
        ),
        (
            String::new(),
            "<project><repositories><repository><url>https://${host}/m2</url></repository></repositories></project>",
            "error pom.xml:1: the host is in a variable; write it out, or allow it by a rule of its own",
        ),
        (
            String::new(),
            "<!DOCTYPE p [<!ENTITY h \"evil.example\">]>\n<project><repositories><repository><url>https://&h;/</url></repository></repositories></project>",
            "error pom.xml:1: not valid: it is no XML that netbox reads",
        ),
        (String::new(), "<project>\n<a></project>", "error pom.xml:2: not valid: it is no XML that netbox reads"),
    ] {
        assert_eq!(resolve(&settings, pom), expected, "{settings} {pom}");
    }
}
