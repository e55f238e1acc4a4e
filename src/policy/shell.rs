//! Words of a command that a person may copy into a shell.

use std::fmt::Write;
use std::path::Path;

/// A path as one word of a POSIX shell, whatever is in its name. With control characters or bytes that are no UTF-8 in
/// it, it takes a shell that knows `$'…'`.
pub fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Ok(text) if text.chars().all(|c| (' '..='~').contains(&c)) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let mut word = String::from("$'");
            for byte in bytes {
                match byte {
                    b'\'' | b'\\' => word.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => word.push(char::from(*byte)),
                    // Writing to a string does not fail.
                    _ => drop(write!(word, "\\x{byte:02x}")),
                }
            }
            word + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_ordinary_path_stays_as_it_is() {
        assert_eq!(shell_word(Path::new("/home/me/a-b_c/netbox.toml")), "/home/me/a-b_c/netbox.toml");
    }

    #[test]
    fn a_shell_reads_one_word_with_the_same_bytes() {
        for name in [
            b"/my files/netbox.toml".as_slice(),
            b"/it's/$(id)`id`\"\\/x",
            b"~/x;rm *",
            b"",
            b"/a\nb\x1b[2J\xff",
            "/\u{202e}x/'\\".as_bytes(),
        ] {
            let word = shell_word(Path::new(OsStr::from_bytes(name)));
            assert!(!word.chars().any(char::is_control), "{word}");
            let output = Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().expect("bash");
            assert_eq!(output.stdout, name, "{word}");
        }
    }
}
