//! What people have on their desks: shells, editors, keys, sandboxes and tracers.

use super::{at_home, greeting, nothing, works};
use crate::programs::{BASH, BWRAP, CURL, GPG, SCRIPT, SSH_AGENT, STRACE, SUDO, TMUX, VIM};
use crate::tests;
use crate::world::World;

tests![
    tmux_runs_programs_and_shows_their_screen needs [TMUX],
    bash_controls_its_jobs needs [BASH],
    bash_controls_its_jobs_in_a_terminal_of_its_own needs [BASH, SCRIPT],
    vim_edits needs [VIM],
    sudo_is_refused_at_once needs [SUDO],
    bwrap_makes_a_sandbox_inside needs [BWRAP],
    the_network_outlives_what_is_done_to_temporary_files needs [BWRAP, CURL],
    strace_follows_its_own_children needs [STRACE, CURL],
    ssh_agent_holds_a_key needs [SSH_AGENT],
    gpg_signs_with_its_agent needs [GPG],
];

const NONE: [&str; 2] = ["--mode", "none"];

fn tmux_runs_programs_and_shows_their_screen(world: &World) {
    let script = "
        tmux -S socket -f /dev/null new-session -d -x 80 -y 24 'exec sh -i'
        tmux -S socket send-keys 'echo typed by $((40 + 2))' Enter 'tmux -S socket wait-for -S done' Enter
        tmux -S socket wait-for done
        tmux -S socket capture-pane -p
        tmux -S socket kill-server
    ";
    for run in [world.bare(), world.netbox(&NONE)] {
        let (run, _) = at_home(world, run);
        run.env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .exec(&["sh", "-c", script])
            .exits_with(0)
            .says("typed by 42\n");
    }
}

fn bash_controls_its_jobs(world: &World) {
    let script = "
        set -m
        sleep 1000 &
        sh -c 'kill -STOP $$; echo went on' &
        while [ \"$(jobs -s | wc -l)\" = 0 ]; do :; done
        jobs | wc -l
        kill %1; wait %1; echo killed $?
        fg %2 >/dev/null; echo then $?
    ";
    works(world, &NONE, nothing, &["bash", "-c", script], &["2\nkilled 143\nwent on\nthen 0\n"]);
}

/// An interactive shell that is typed to.
fn bash_controls_its_jobs_in_a_terminal_of_its_own(world: &World) {
    let typed = "stty rows 33 cols 111; stty size\nsleep 1000 &\njobs\nkill %1; wait %1; echo killed $?\nexit 7\n";
    for run in [world.bare(), world.netbox(&NONE)] {
        let (run, _) = at_home(world, run);
        let run = run.env("TERM", "dumb").stdin(typed.as_bytes());
        let outcome = run.exec(&["script", "--quiet", "--return", "--command", "bash --norc -i", "/dev/null"]);
        outcome.exits_with(7).says("33 111").says("Running").says("killed 143");
        outcome.does_not_say("no job control");
    }
}

fn vim_edits(world: &World) {
    let write = |home: &std::path::PathBuf| std::fs::write(home.join("text"), "before\n").expect("own folder");
    let script = "vim -es -u NONE -c '%s/before/after/' -c 'r !echo from a child' -c 'wq' text; cat text";
    works(world, &NONE, write, &["sh", "-c", script], &["after\nfrom a child\n"]);
}

/// Without a question, and without waiting for an answer.
fn sudo_is_refused_at_once(world: &World) {
    let outcome = world.netbox(&NONE).exec(&["sudo", "-n", "id", "-u"]);
    if world.identity.real_root {
        // Who is root needs nobody to become root.
        outcome.exits_with(0);
    } else {
        outcome.exits_with(1).does_not_say("0").complains("no new privileges");
    }
}

fn bwrap_makes_a_sandbox_inside(world: &World) {
    let host = world.zone().host("bwrap-inside");
    let url = host.http("/");
    let sandbox =
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-pid", "--die-with-parent"];
    // Root's `/proc/sys` is read-only inside, and the kernel lets nobody mount a fresh one beside it.
    let proc: &[&str] = if world.identity.real_root { &[] } else { &["--proc", "/proc"] };
    let script = "curl --silent --max-time 30 \"$0\" && : >/tmp/own && ls /tmp && echo x >/dev/null";
    let inside = ["sh", "-c", script, &url];
    let words = [&sandbox[..], proc, &inside].concat();
    works(world, &["--allow", &host.name], nothing, &words, &[&greeting(&host), "own\n"]);
    // One that takes the network away takes it from what is in it.
    let words = [&sandbox[..], proc, &["--unshare-net"], &inside].concat();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&words);
    outcome.does_not_say("hello");
    assert_ne!(outcome.code, Some(0), "{outcome}");
}

/// No socket or file of netbox's lies where the command could remove it.
fn the_network_outlives_what_is_done_to_temporary_files(world: &World) {
    let host = world.zone().host("temporary");
    let script = "rm -rf \"$TMPDIR\"/* \"$TMPDIR\"/.[a-z]*; curl --silent --max-time 30 \"$0\" &&
        bwrap --dev-bind / / --tmpfs /tmp --tmpfs /run curl --silent --max-time 30 \"$0\"";
    let (run, home) = at_home(world, world.netbox(&["--allow", &host.name]));
    let outcome = run.env("TMPDIR", home).exec(&["sh", "-c", script, &host.http("/")]);
    outcome.exits_with(0);
    assert_eq!(outcome.stdout().matches(&greeting(&host)).count(), 2, "{outcome}");
}

fn strace_follows_its_own_children(world: &World) {
    let host = world.zone().host("strace");
    let trace = "strace -f -e trace=connect,execve -o trace sh -c \"curl --silent --max-time 30 $0\"; cat trace";
    let says = [&*greeting(&host), "execve(", "sin_port=htons(80)", "+++ exited with 0 +++"];
    works(world, &["--allow", &host.name], nothing, &["sh", "-c", trace, &host.http("/")], &says);
}

fn ssh_agent_holds_a_key(world: &World) {
    let script =
        "ssh-keygen -q -t ed25519 -N '' -C of-the-tests -f key && ssh-agent sh -c 'ssh-add -q key && ssh-add -l'";
    works(world, &NONE, nothing, &["sh", "-c", script], &["of-the-tests (ED25519)\n"]);
}

fn gpg_signs_with_its_agent(world: &World) {
    let script = "
        mkdir -m 700 keys && export GNUPGHOME=$PWD/keys
        gpg --batch --quiet --passphrase '' --quick-generate-key me@example.com ed25519 sign never
        echo signed | gpg --batch --quiet --clearsign | gpg --batch --quiet --decrypt
        gpgconf --kill all
    ";
    works(world, &NONE, nothing, &["sh", "-c", script], &["signed\n"]);
}
