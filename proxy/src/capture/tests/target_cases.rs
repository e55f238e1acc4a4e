//! `tests/cases/target.jsonl`, for the doors that are driven from it.

use std::io::Write;

use netbox_config::Port;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::world::World;

/// One case.
pub struct Case {
    pub id: String,
    pub line: Value,
}

impl Case {
    pub fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.line.get(key).and_then(Value::as_array);
        list.map(|list| list.iter().map(|item| item.as_str().unwrap()).collect()).unwrap_or_default()
    }

    pub fn input(&self) -> Vec<u8> {
        match self.line.get("input_hex").and_then(Value::as_str) {
            Some(hex) => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            None => self.line["input"].as_str().unwrap().as_bytes().to_vec(),
        }
    }

    /// The port, where there is one.
    pub fn port(&self) -> Option<u16> {
        let input = self.input();
        let colon = input.iter().rposition(|byte| *byte == b':')?;
        Port::parse(&input[colon + 1..]).ok().map(Port::get)
    }

    /// A sandbox in the case's world, where a server answers at every address that may be meant.
    pub async fn world(&self) -> (World, JoinSet<()>) {
        let world = World::new(&self.texts("policy")).on_host(&self.texts("host_addresses"), &[]);
        let mut servers = JoinSet::new();
        let port = self.port().unwrap_or(80);
        let mut addresses: Vec<String> = Vec::new();
        for (name, answer) in self.line["resolve"].as_object().into_iter().flatten() {
            let answer: Vec<_> = answer.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            world.resolves(name, Ok(&answer));
            addresses.extend(answer.into_iter().map(str::to_owned));
        }
        let input = String::from_utf8_lossy(&self.input()).into_owned();
        if let Some((host, _)) = input.rsplit_once(':') {
            addresses.push(host.trim_matches(['[', ']']).to_owned());
        }
        for address in addresses.iter().filter_map(|address| address.parse::<std::net::IpAddr>().ok()) {
            let address = std::net::SocketAddr::new(address.to_canonical(), port);
            let server = world.server(&address.to_string()).await;
            servers.spawn(async move {
                let mut upstream = server.accept_any().await;
                let _ = upstream.read_to_end(&mut Vec::new()).await;
                let _ = upstream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await;
            });
        }
        (world, servers)
    }
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let file = include_str!("../../../../tests/cases/target.jsonl");
    let cases: Vec<_> = file
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            Case { id: line["id"].as_str().unwrap().to_owned(), line }
        })
        .collect();
    assert!(cases.len() >= 161, "{} cases", cases.len());
    cases
}

/// Says how many cases hold at a door, past the capture of tests that pass.
pub fn tell(door: &str, count: usize) {
    let all = cases().len();
    writeln!(std::io::stderr(), "target.jsonl: {count} of {all} cases hold by {door}").unwrap();
}
