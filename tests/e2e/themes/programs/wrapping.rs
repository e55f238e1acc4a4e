//! What a wrapper of commands must not change: arguments, ports, signals, and what is direct.

use nix::sys::signal::Signal;

use super::greeting;
use crate::programs::{CURL, NODE, PYTHON};
use crate::tests;
use crate::world::World;

tests![
    arguments_arrive_as_they_are needs [NODE, PYTHON],
    servers_may_listen_on_every_address_and_port needs [PYTHON],
    a_program_that_ignores_ctrl_c_keeps_its_network needs [CURL],
    only_loopback_is_beside_the_proxy needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// No shell reads them again.
fn arguments_arrive_as_they_are(world: &World) {
    let node = ["node", "-e", "console.log('a  b', process.argv.slice(1))", "x", "y z", "$HOME", "*", "'", ""];
    let python = ["python3", "-c", "import sys; print(sys.argv[1:])", "--allow", "-q", "--", "a\nb", "\u{e9}"];
    for words in [&node[..], &python] {
        let bare = world.bare().exec(words).exits_with(0).stdout();
        assert_eq!(world.netbox(&FLAGS).exec(words).exits_with(0).stdout(), bare);
    }
}

fn servers_may_listen_on_every_address_and_port(world: &World) {
    let script = "
import socket
for address in '127.0.0.1', '0.0.0.0', '127.7.7.7', '::1', '::':
    for port in 0, 1, 443:
        with socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET) as server:
            server.bind((address, port))
            server.listen()
            print(address, port)
";
    let outcome = world.netbox(&FLAGS).exec(&["python3", "-c", script]);
    assert_eq!(outcome.exits_with(0).stdout().lines().count(), 15, "{outcome}");
}

/// The keys go to everybody in the foreground, and netbox is none of those that they are meant for.
fn a_program_that_ignores_ctrl_c_keeps_its_network(world: &World) {
    let host = world.zone().host("ctrl-c");
    let script = "trap 'echo interrupted' INT; echo ready; read line; curl --silent --max-time 30 \"$0\"";
    let flags = ["--allow", &host.name];
    let mut running = world.netbox(&flags).stdin_open().start(&["bash", "-c", script, &host.http("/")]);
    running.wait_for_stdout("ready\n");
    running.signal(Signal::SIGINT);
    running.wait_for_stdout("interrupted\n");
    running.write(b"go on\n");
    running.finish().exits_with(0).says(&greeting(&host));
}

fn only_loopback_is_beside_the_proxy(world: &World) {
    let show = ["sh", "-c", "echo $NO_PROXY / $no_proxy"];
    let with = |flags: &[&str]| {
        let run = world.netbox(&[&FLAGS[..], flags].concat()).env("NO_PROXY", "*").env("no_proxy", "example.com");
        run.exec(&show).exits_with(0).stdout()
    };
    assert_eq!(with(&[]), "/\n");
    let loopback = "localhost,127.0.0.1,::1";
    assert_eq!(with(&["--proxy-env", "all"]), format!("{loopback} / {loopback}\n"));
}
