//! `pip.conf` and requirements files.

use netbox_config::derived::pip::PipVariables;
use netbox_config::derived::{Setting, pip, requirements};

use super::{page, show};

fn resolve(variables: &PipVariables, texts: &[&str]) -> String {
    let files: Result<Vec<_>, _> = texts.iter().map(|text| pip::parse(&page("pip.conf", text))).collect();
    show(files.and_then(|files| pip::resolve(variables, &files)))
}

#[test]
fn indexes_of_all_sections_count() {
    for (text, expected) in [
        ("", "default"),
        ("[global]\nindex-url = https://pypi.example.com/simple", "pypi.example.com:443 pip.conf:2"),
        ("[global]\nINDEX_URL: https://u:s3cret@pypi.example.com/simple\n", "pypi.example.com:443 pip.conf:2"),
        ("[install]\nindex-url = https://pypi.example.com/simple", "pypi.example.com:443 pip.conf:2; default"),
        (
            "[global]\nextra-index-url =\n    https://a.example.com/simple\n  # comment\n    https://b.example.com:8443/\n",
            "a.example.com:443 pip.conf:2; b.example.com:8443 pip.conf:2; default",
        ),
        (
            "[global]\nindex-url=https://pypi.example.com/\n[download]\nindex-url=https://other.example.com/",
            "other.example.com:443 pip.conf:4; pypi.example.com:443 pip.conf:2",
        ),
        (
            "[global]\nfind-links = /srv/wheels https://wheels.example.com/x",
            "wheels.example.com:443 pip.conf:2; default",
        ),
        ("[global]\nno-index = true\nindex-url = https://pypi.example.com/\nfind-links = /srv/wheels", ""),
        ("[global]\nno-index = yes\n[install]\nno-index = no", "default"),
        (
            "[global]\ntrusted-host = x.example.com\ncert = /etc/ssl/a.pem\n  index-url = https://no.example.com",
            "default",
        ),
        (
            "[global]\nindex-url = pypi.example.com",
            "error pip.conf:2: not a URL, or one of a form that netbox does not read",
        ),
        ("[global\nindex-url = https://x.example.com", "error pip.conf:1: not valid: a section without its `]`"),
        ("[global]\ns3cret", "error pip.conf:2: not valid: neither a section nor a key with a value"),
    ] {
        assert_eq!(resolve(&PipVariables::default(), &[text]), expected, "{text}");
    }
}

#[test]
fn variables_count_most_and_later_files_more() {
    let machine = "[global]\nindex-url = https://machine.example.com/\nextra-index-url = https://extra.example.com/";
    let user = "\n[global]\nindex-url = https://user.example.com/";
    let variable = |name, value: &str| Some(Setting::of_environment(name, value));
    assert_eq!(
        resolve(&PipVariables::default(), &[machine, user]),
        "user.example.com:443 pip.conf:3; extra.example.com:443 pip.conf:3"
    );
    let index =
        PipVariables { index_url: variable("PIP_INDEX_URL", "https://env.example.com/"), ..PipVariables::default() };
    assert_eq!(resolve(&index, &[machine]), "env.example.com:443 PIP_INDEX_URL; extra.example.com:443 pip.conf:3");
    let none = PipVariables { no_index: variable("PIP_NO_INDEX", "1"), ..PipVariables::default() };
    assert_eq!(resolve(&none, &[machine]), "");
}

#[test]
fn requirements_name_indexes_and_files() {
    for (text, expected) in [
        ("six==1.16\n# https://no.example.com/\n./local\n", "default"),
        ("--index-url https://pypi.example.com/simple\nsix", "pypi.example.com:443 requirements.txt:1"),
        ("-i https://pypi.example.com/simple # https://no.example.com/", "pypi.example.com:443 requirements.txt:1"),
        ("-ihttps://pypi.example.com/simple", "pypi.example.com:443 requirements.txt:1"),
        ("--extra-index-url=https://extra.example.com/", "extra.example.com:443 requirements.txt:1; default"),
        ("--no-index\n-f https://wheels.example.com/", "wheels.example.com:443 requirements.txt:2"),
        (
            "a @ https://files.example.com/a.whl ; python_version > '3'",
            "files.example.com:443 requirements.txt:1; default",
        ),
        ("https://files.example.com/a.zip#egg=a", "files.example.com:443 requirements.txt:1; default"),
        ("-e git+ssh://git@git.example.com/a.git@v1#egg=a", "git.example.com:22 requirements.txt:1; default"),
        ("git+https://user:s3cret@git.example.com/a", "git.example.com:443 requirements.txt:1; default"),
        ("-r https://reqs.example.com/r.txt\n-r other.txt", "reqs.example.com:443 requirements.txt:1; default"),
        (
            "\n--extra-index-url \\\n  https://extra.example.com/ \\\n  --pre\nsix",
            "extra.example.com:443 requirements.txt:2; default",
        ),
        ("six --hash=sha256:aa \\\n    --hash=sha256:bb", "default"),
        (
            "--extra-index-url https://${INDEX}/simple",
            "error requirements.txt:1: the host is in a variable; write it out, or allow it by a rule of its own",
        ),
    ] {
        assert_eq!(show(requirements::parse(&page("requirements.txt", text))), expected, "{text}");
    }
}
