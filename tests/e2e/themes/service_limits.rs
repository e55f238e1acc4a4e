//! What many have together of the shared service: the sandboxes of a user, and the clients of a role.

use std::fs;

use netbox_config::service::TokenHash;

use crate::control::{Cell, request};
use crate::programs::{CURL, curl};
use crate::run::eventually;
use crate::service::Service;
use crate::tests;
use crate::world::World;

tests![
    the_sandboxes_of_a_user_share_its_connections needs [CURL],
    the_sandboxes_of_a_user_share_its_bytes needs [CURL],
    one_client_of_a_role_leaves_room_for_others needs [CURL],
];

/// A service with this configuration.
fn service<'w>(world: &'w World, text: &str) -> Service<'w> {
    let file = world.fresh_path("files").with_extension("toml");
    fs::write(&file, text).expect("own folder");
    Service::start(world, &["--config", &file.to_string_lossy()])
}

/// Its metrics, as they are for whoever has no token.
fn metrics(world: &World, service: &Service<'_>) -> String {
    let listening = service.running().wait_for_stderr("listening on ");
    let address = listening.split(' ').rev().find(|address| address.starts_with("127.")).expect("a TCP address");
    world.bare().exec(&curl(&[&format!("http://{address}/metrics")])).exits_with(0).stdout()
}

fn the_sandboxes_of_a_user_share_its_connections(world: &World) {
    let host = world.zone().host("user-connections");
    let settings = |table: &str| format!("[service]\nmetrics = \"127.0.0.1:0\"\n{table}");
    let uid = world.identity.uid;
    for table in [
        "[service.user_limits]\nconnections = 10\n".to_owned(),
        format!("[service.user.{uid}]\nceiling = [\"*.example.com\"]\nuser_limits = {{ connections = 10 }}\n"),
    ] {
        let service = service(world, &settings(&table));
        let cells = [Cell::new(), Cell::new()];
        let _leases = [&cells[0], &cells[1]].map(|cell| cell.attached(world, &service, &[&host.name]));
        let before = service.sockets();
        let idle: Vec<_> = (0..40).filter_map(|number| cells[number % 2].connect().ok()).collect();
        assert!(eventually(|| metrics(world, &service).contains("{limit=\"user_connections\"} 30\n")), "{table}");
        // Whoever asks for metrics has one too.
        assert!(eventually(|| service.sockets() == before + 10), "{} sockets, {before} before", service.sockets());
        drop(idle);
        let answers = |cell: &Cell| {
            let asked = cell.connect().and_then(|mut stream| request(&mut stream, &host.name, "/"));
            asked.is_ok_and(|answer| answer.0 == 200)
        };
        assert!(cells.iter().all(|cell| eventually(|| answers(cell))), "what was given back can be had");
        service.stop().exits_with(0);
    }
}

/// Also those of one that is gone count.
fn the_sandboxes_of_a_user_share_its_bytes(world: &World) {
    let host = world.zone().host("user-bytes");
    let service = service(world, "[service.user_limits]\nbytes = \"400 B\"\n");
    let url = host.http("/page");
    let fetch = || service.netbox(&["--allow", &host.name]).exec(&curl(&[&url]));
    fetch().exits_with(0).says("GET /page");
    // The second at the latest uses them up.
    let outcomes: Vec<_> = (0..4).map(|_| fetch()).collect();
    let last = outcomes.last().expect("four");
    assert_eq!(last.refused(&host.name, 80, "limit")["verdict"], "deny", "{last}");
    service.stop().exits_with(0);
}

fn one_client_of_a_role_leaves_room_for_others(world: &World) {
    let host = world.zone().host("role-client");
    let hash = TokenHash::of(b"token-of-ci");
    let text = |limits: &str| {
        format!(
            "[service]\nlisten = [\"127.0.0.1:0\"]\nmetrics = \"127.0.0.1:0\"\n[service.role.ci]\nallow = [\"{}\"]\n\
             tokens = [\"{hash}\"]\nlimits = {{ {limits} }}\n",
            host.name
        )
    };
    let service = service(world, &text("connections_per_client = 1, connections = 10"));
    let listening = service.running().wait_for_stderr("listening on ");
    let address = listening.split(' ').find(|address| address.starts_with("127.")).expect("a TCP address").to_owned();
    let proxy = format!("http://ci:token-of-ci@{address}");
    let stream = host.http("/events?gate=role-client");
    let held = world.bare().start(&curl(&["--no-buffer", "--proxy", &proxy, &stream]));
    held.wait_for_stdout("data: first\n");
    let page = host.http("/page");
    let refused = world.bare().exec(&curl(&["--include", "--proxy", &proxy, &page]));
    refused.says("HTTP/1.1 403").says("limit");
    // Another address of the same network is another client.
    let other = world.bare().exec(&curl(&["--interface", "127.0.0.2", "--proxy", &proxy, &page]));
    other.exits_with(0).says("GET /page");
    assert!(metrics(world, &service).contains("netbox_limits_total{limit=\"connections_per_client\"} 1\n"));
    world.gates().open("role-client");
    held.finish().exits_with(0);
    world.bare().exec(&curl(&["--proxy", &proxy, &page])).exits_with(0).says("GET /page");
    service.stop().exits_with(0);
}
