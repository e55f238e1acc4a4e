//! `--host-port` and `--publish`: what they mean together.

use netbox_config::{HostPort, Port, RuleRef};
use netbox_launcher::{MAX_HOST_PORTS, OWN_PORTS};

use crate::cli::{HostPortArgument, PublishArgument};

/// The ports that a run opens between the two loopbacks. They fit together.
#[derive(Debug, Default)]
pub struct Ports {
    pub host: Vec<HostPortArgument>,
    pub published: Vec<PublishArgument>,
}

impl Ports {
    /// # Errors
    /// Two that contradict each other, or one that is netbox's own: a line with the flag as it was typed.
    pub fn new(host: &[HostPortArgument], published: &[PublishArgument]) -> Result<Self, String> {
        if host.len() > MAX_HOST_PORTS {
            return Err(format!(
                "`--host-port` is given {} times, and a sandbox has at most {MAX_HOST_PORTS}",
                host.len()
            ));
        }
        for (index, door) in host.iter().enumerate() {
            let flag = format!("`--host-port {}`", door.text);
            if let Some(own) = [door.port, door.host_port].into_iter().find(|port| is_own(*port)) {
                return Err(format!("{flag}: {own} is a port of netbox's own"));
            }
            if let Some(other) = host[..index].iter().find(|other| other.port == door.port) {
                return Err(format!("{flag}: port {} inside is taken by `--host-port {}`", door.port, other.text));
            }
            if let Some(other) = published.iter().find(|other| other.port == Some(door.host_port)) {
                return Err(format!("{flag} leads back into the sandbox by `--publish {}`", other.text));
            }
        }
        for (index, door) in published.iter().enumerate() {
            let flag = format!("`--publish {}`", door.text);
            if is_own(door.sandbox_port) {
                return Err(format!("{flag}: {} inside is a port of netbox's own", door.sandbox_port));
            }
            let twice = |other: &&PublishArgument| other.port.is_some() && other.port == door.port;
            if let Some(other) = published[..index].iter().find(twice) {
                return Err(format!("{flag} wants the same port as `--publish {}`", other.text));
            }
            if let Some(other) = host.iter().find(|other| other.port == door.sandbox_port) {
                return Err(format!("{flag} leads back to this machine by `--host-port {}`", other.text));
            }
        }
        Ok(Self { host: host.to_vec(), published: published.to_vec() })
    }

    /// The ports inside that lead to the host's loopback.
    pub fn inside(&self) -> Vec<u16> {
        self.host.iter().map(|door| door.port.get()).collect()
    }

    /// What the port inside leads to.
    pub fn behind(&self, port: u16) -> Option<HostPort> {
        let door = self.host.iter().find(|door| door.port.get() == port)?;
        let rule = RuleRef { text: door.text.as_str().into(), source: "--host-port".into() };
        Some(HostPort { port: door.host_port, rule })
    }
}

fn is_own(port: Port) -> bool {
    OWN_PORTS.contains(&port.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(host: &[&str], published: &[&str]) -> Result<Ports, String> {
        let host: Vec<_> = host.iter().map(|text| HostPortArgument::parse(text).unwrap()).collect();
        let published: Vec<_> = published.iter().map(|text| PublishArgument::parse(text).unwrap()).collect();
        Ports::new(&host, &published)
    }

    #[test]
    fn ports_that_lead_somewhere_fit() {
        let ports = ports(&["3000", "3001:3000", "80:8080"], &["8000:4000", "8001:4000", "0:4000", "0:4001"]).unwrap();
        assert_eq!(ports.inside(), [3000, 3001, 80]);
        let behind = ports.behind(80).unwrap();
        assert_eq!((behind.port.get(), &*behind.rule.text, &*behind.rule.source), (8080, "80:8080", "--host-port"));
        assert!(ports.behind(8080).is_none());
    }

    #[test]
    fn ports_that_contradict_each_other_do_not() {
        for (host, published, part) in [
            (&["3000", "3000:1"][..], &[][..], "`--host-port 3000:1`: port 3000 inside is taken by `--host-port 3000`"),
            (&["61001"], &[], "61001 is a port of netbox's own"),
            (&["3000:61003"], &[], "61003 is a port of netbox's own"),
            (&[], &["8000:61003"], "61003 inside is a port of netbox's own"),
            (&[], &["8000", "8000:1"], "wants the same port as `--publish 8000`"),
            (&["3000:8000"], &["8000:4000"], "leads back into the sandbox by `--publish 8000:4000`"),
            (&["3000"], &["8000:3000"], "leads back to this machine by `--host-port 3000`"),
        ] {
            let error = ports(host, published).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let many: Vec<_> = (1..=MAX_HOST_PORTS + 1).map(|port| port.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(ports(&many[1..], &[]).is_ok());
        assert!(ports(&many, &[]).unwrap_err().contains("at most"));
    }
}
