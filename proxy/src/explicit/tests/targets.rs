//! `tests/cases/target.jsonl` at the three doors, driven from the file: a new line is a new test.

use netbox_config::Port;
use tokio::task::JoinSet;

use super::*;

/// What CONNECT and SOCKS5 do not take, and an absolute-form request does: it may leave the port out.
const PORT_LEFT_OUT: [&str; 2] = ["T059", "T194"];

struct Case {
    id: String,
    line: Value,
}

impl Case {
    fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.line.get(key).and_then(Value::as_array);
        list.map(|list| list.iter().map(|item| item.as_str().unwrap()).collect()).unwrap_or_default()
    }

    fn input(&self) -> Vec<u8> {
        match self.line.get("input_hex").and_then(Value::as_str) {
            Some(hex) => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            None => self.line["input"].as_str().unwrap().as_bytes().to_vec(),
        }
    }

    /// The port, where there is one.
    fn port(&self) -> Option<u16> {
        let input = self.input();
        let colon = input.iter().rposition(|byte| *byte == b':')?;
        Port::parse(&input[colon + 1..]).ok().map(Port::get)
    }

    /// A sandbox in the case's world, where a server answers at every address that may be meant.
    async fn world(&self) -> (World, JoinSet<()>) {
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

    /// Sends it to the explicit door. `outcome` says what an answer means.
    async fn drive(&self, door: &str, bytes: &[u8], outcome: impl Fn(&[u8]) -> &'static str) -> Option<String> {
        let (mut world, _servers) = self.world().await;
        let mut client = world.explicit().await;
        send(&mut client, bytes).await;
        // All that a tunnel is told, or the end of a refusal.
        client.shutdown().await.unwrap();
        let answer = all(&mut client).await;
        drop(client);
        let (lookups, dials) = (world.net.lookups.lock().unwrap().clone(), world.net.dials.lock().unwrap().clone());
        let events = world.events().await;
        let expected = self.line["expect"].as_str().unwrap();
        let (outcome, reason) = (outcome(&answer), reasons(&events)[0].to_owned());
        let fine = expected == outcome || self.texts("also_ok").contains(&outcome);
        // In clear text to the port of TLS, it is refused all the same.
        let fine = fine || (door == "absolute-form" && self.port() == Some(443) && reason == "not-tls");
        let verdict = of(&events, "decision")[0]["verdict"].as_str().unwrap().to_owned();
        let told = verdict == outcome && of(&events, "decision").len() == 1;
        // Only what is refused for its addresses was looked up.
        let quiet = outcome == "allow" || (dials.is_empty() && (lookups.is_empty() || reason == "non-public"));
        let failure = || format!("{} by {door}: {outcome} ({reason}), not {expected}; {lookups:?} {dials:?}", self.id);
        (!fine || !told || !quiet).then(failure)
    }
}

fn cases() -> Vec<Case> {
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

fn by_status(answer: &[u8]) -> &'static str {
    match answer.get(9..12) {
        Some(b"200") => "allow",
        Some(b"403") => "deny",
        Some(b"400" | b"431" | b"501") => "error",
        _ => "nothing that was foreseen",
    }
}

#[tokio::test]
async fn targets_hold_by_connect() {
    let mut failures = Vec::new();
    for case in cases() {
        let request = [b"CONNECT ", &case.input()[..], b" HTTP/1.1\r\nHost: x.example\r\n\r\n"].concat();
        failures.extend(case.drive("CONNECT", &request, by_status).await);
    }
    assert_eq!(failures, [""; 0]);
}

/// The host is written as in the authority, with its brackets, and without.
#[tokio::test]
async fn targets_hold_by_socks5() {
    let by_reply = |answer: &[u8]| match answer {
        [5, 0, 5, 0, ..] => "allow",
        [5, 0, 5, 2, ..] => "deny",
        [5, 0, 5, 1, ..] => "error",
        _ => "nothing that was foreseen",
    };
    let (mut failures, mut driven) = (Vec::new(), 0);
    for case in cases() {
        let input = case.input();
        // No request can say that there is no port, or one beyond 16 bits, or so long a name.
        let Some(port) = case.port() else { continue };
        let host = &input[..input.iter().rposition(|byte| *byte == b':').unwrap()];
        if host.len() > 255 {
            continue;
        }
        let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
        for name in [host].into_iter().chain(bare.filter(|bare| bare.contains(&b':'))) {
            failures.extend(case.drive("SOCKS5", &[GREETING, &named(name, port)].concat(), by_reply).await);
        }
        driven += 1;
    }
    assert_eq!(failures, [""; 0]);
    assert!(driven >= 145, "{driven} cases");
}

/// In HTTP/1.0, which needs no `Host`: the target stands in one place.
#[tokio::test]
async fn targets_hold_by_absolute_form() {
    let mut failures = Vec::new();
    for case in cases().into_iter().filter(|case| !PORT_LEFT_OUT.contains(&case.id.as_str())) {
        let request = [b"GET http://", &case.input()[..], b"/ HTTP/1.0\r\n\r\n"].concat();
        failures.extend(case.drive("absolute-form", &request, by_status).await);
    }
    assert_eq!(failures, [""; 0]);
}
