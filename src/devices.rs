//! `--dev`: devices of the host that the command may open.

use std::path::{Path, PathBuf};

use netbox_launcher::{Device, NoDevice};

/// What a path begins with, and what its device can do besides what it is for.
const WAYS_OUT: [(&str, &str); 12] = [
    ("/dev/mem", "is the machine's memory"),
    ("/dev/kmem", "is the machine's memory"),
    ("/dev/port", "is the machine's ports"),
    ("/dev/kmsg", "is the kernel's log"),
    ("/dev/uinput", "types into the programs of this machine"),
    ("/dev/input", "tells what is typed on this machine"),
    ("/dev/console", "is a terminal of this machine's"),
    ("/dev/tty", "may be a terminal that somebody else works at"),
    ("/dev/vhost", "reaches virtual machines past every network namespace"),
    ("/dev/vsock", "reaches virtual machines past every network namespace"),
    ("/dev/mapper", "leads to disks"),
    ("/dev/disk", "leads to disks"),
];

/// Finds them, so that each is the device that its path means now.
///
/// # Errors
/// Why one cannot be had, and what to do.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Device>, String> {
    paths.iter().map(|path| Device::find(path).map_err(|why| refusal(path, &why))).collect()
}

fn refusal(path: &Path, why: &NoDevice) -> String {
    let remedy = match why {
        NoDevice::Missing(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "; load the driver that makes it, or leave the flag out"
        }
        NoDevice::Elsewhere | NoDevice::Another => "; write the path of a device, such as `/dev/kvm` or `/dev/dri`",
        NoDevice::Missing(_) | NoDevice::Own(_) => "",
    };
    format!("`--dev`: {}: {why}{remedy}", quote(path))
}

/// What is to be said about a device before anything runs.
pub fn warning(path: &Path, device: &Device) -> Option<String> {
    let text = path.to_string_lossy();
    let what = WAYS_OUT.iter().find(|(start, _)| text.starts_with(start)).map(|(_, what)| *what);
    let what =
        what.or_else(|| device.is_block().then_some("is a disk, whose files can be read and changed through it"))?;
    Some(format!("{} {what}; the command can leave the sandbox by it", quote(path)))
}

fn quote(path: &Path) -> String {
    netbox_config::quote(path.as_os_str().as_encoded_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let error = find(&["/dev/no-such-device".into()]).expect_err("there is none");
        assert!(error.contains("/dev/no-such-device") && error.contains("driver"), "{error}");
        let error = find(&["/etc/passwd".into()]).expect_err("not below /dev");
        assert!(error.contains("below `/dev`") && error.contains("/dev/kvm"), "{error}");
        let error = find(&["/dev/pts/0".into()]).expect_err("netbox makes its own");
        assert!(error.contains("/dev/pts"), "{error}");
    }
}
