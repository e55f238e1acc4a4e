//! `--host-port` and `--publish`: ports of the host and of the sandbox, as they are typed.

use netbox_config::{Port, PortError, quote};

/// `--host-port PORT[:HOSTPORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPortArgument {
    /// Inside, on loopback.
    pub port: Port,
    /// On the host's loopback.
    pub host_port: Port,
    /// As it was typed.
    pub text: String,
}

/// `--publish PORT[:SANDBOXPORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishArgument {
    /// On the host's loopback. `None`: the system chooses.
    pub port: Option<Port>,
    /// Inside, on loopback.
    pub sandbox_port: Port,
    /// As it was typed.
    pub text: String,
}

impl HostPortArgument {
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (near, far) = halves(text)?;
        let port = port(near)?;
        let host_port = far.map_or(Ok(port), self::port)?;
        Ok(Self { port, host_port, text: text.to_owned() })
    }
}

impl PublishArgument {
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (near, far) = halves(text)?;
        let chosen = if near == "0" { None } else { Some(port(near)?) };
        let sandbox_port = match (far, chosen) {
            (Some(far), _) => port(far)?,
            (None, Some(chosen)) => chosen,
            (None, None) => return Err("for a port of the system's choice, write `0:SANDBOXPORT`".into()),
        };
        Ok(Self { port: chosen, sandbox_port, text: text.to_owned() })
    }
}

fn halves(text: &str) -> Result<(&str, Option<&str>), String> {
    let (near, far) = text.split_once(':').map_or((text, None), |(near, far)| (near, Some(far)));
    if far.is_some_and(|far| far.contains(':')) || near.contains(['.', '[']) {
        return Err("write ports alone, as in `3000` or `3000:8000`: it is always 127.0.0.1".into());
    }
    Ok((near, far))
}

fn port(text: &str) -> Result<Port, String> {
    Port::parse(text.as_bytes()).map_err(|error| match error {
        PortError::NotDigits if text.contains(['-', ',']) => "write the flag once for each port".to_owned(),
        error => format!("{} is no port: {error}", quote(text.as_bytes())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_means_the_same_on_both_sides() {
        let pair = |text: &str| HostPortArgument::parse(text).map(|pair| (pair.port.get(), pair.host_port.get()));
        assert_eq!(pair("3000"), Ok((3000, 3000)));
        assert_eq!(pair("3000:8000"), Ok((3000, 8000)));
        let pair = |text: &str| {
            PublishArgument::parse(text).map(|pair| (pair.port.map_or(0, Port::get), pair.sandbox_port.get()))
        };
        assert_eq!(pair("3000"), Ok((3000, 3000)));
        assert_eq!(pair("8000:3000"), Ok((8000, 3000)));
        assert_eq!(pair("0:3000"), Ok((0, 3000)));
    }

    #[test]
    fn what_is_no_port_says_what_to_write() {
        for (text, part) in [
            ("", "missing"),
            ("3000:", "missing"),
            (":3000", "missing"),
            ("3000:0", "1 to 65535"),
            ("70000", "1 to 65535"),
            ("+80", "digits only"),
            ("080", "leading zero"),
            ("http", "by its number"),
            ("3000-3010", "once for each port"),
            ("3000,3001", "once for each port"),
            ("127.0.0.1:3000", "ports alone"),
            ("3000:127.0.0.1:80", "ports alone"),
            ("[::1]:3000", "ports alone"),
        ] {
            for error in [HostPortArgument::parse(text).unwrap_err(), PublishArgument::parse(text).unwrap_err()] {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
        assert!(HostPortArgument::parse("0").is_err() && HostPortArgument::parse("0:3000").is_err());
        assert!(PublishArgument::parse("0").unwrap_err().contains("`0:SANDBOXPORT`"));
    }
}
