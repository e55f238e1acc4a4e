//! A terminal as input or output: the command has one of its own in its place, and notices nothing else.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, SpecialCharacterIndices, tcsetattr};

use crate::outcome::Outcome;
use crate::programs::{CURL, PYTHON};
use crate::run::{Run, eventually};
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

tests![
    each_descriptor_that_is_a_terminal_is_one_inside needs [],
    the_terminal_inside_is_another_one needs [],
    modes_and_size_come_along needs [],
    a_new_size_arrives needs [],
    what_is_typed_is_echoed_and_read needs [],
    control_keys_are_signals_inside needs [PYTHON],
    output_is_complete_and_the_same_as_without_netbox needs [],
    the_last_words_of_a_command_are_not_lost needs [],
    much_can_be_pasted needs [],
    output_that_nobody_takes_holds_up_no_connection needs [CURL],
    modes_are_restored_whatever_ends_the_run needs [],
    what_a_killed_program_did_to_the_screen_is_undone needs [],
    typing_for_others_is_refused needs [PYTHON],
    closing_the_window_hangs_up needs [],
];

/// Quiet, since a warning, as root gets one, would stand on the terminal too.
const FLAGS: [&str; 3] = ["--mode", "none", "--quiet"];

fn null() -> OwnedFd {
    fs::File::options().read(true).write(true).open("/dev/null").expect("everyone has it").into()
}

/// All eight combinations, while the terminal is that of the session in any case.
fn each_descriptor_that_is_a_terminal_is_one_inside(world: &World) {
    let terminal = Terminal::new();
    let script =
        "r=; for n in 0 1 2; do test -t $n && r=$r$n; done; (: </dev/tty) && r=\"$r own\"; echo \"$r\" >\"$0\"";
    for kept in 0..8 {
        let report = world.fresh_path("files").with_extension("report");
        let mut run = world.netbox(&FLAGS).on(&terminal);
        let mut expected = String::new();
        for (number, replace) in [Run::stdin_from, Run::stdout_to, Run::stderr_to].into_iter().enumerate() {
            if kept >> number & 1 == 1 {
                expected.push_str(&number.to_string());
            } else {
                run = replace(run, null());
            }
        }
        run.exec(&["sh", "-c", script, report.to_str().expect("text")]).exits_with(0);
        // Without any, it has none by that name either.
        expected.push_str(if kept > 0 { " own\n" } else { "\n" });
        assert_eq!(fs::read_to_string(report).expect("it wrote that"), expected, "{kept:b}");
    }
}

fn the_terminal_inside_is_another_one(world: &World) {
    let (terminal, [one, other]) = (Terminal::new(), [Terminal::new(), Terminal::new()]);
    // Inside, this is the name of the command's own.
    let other = if one.path().ends_with("0") { other } else { one };
    let path = other.path();
    let words = ["sh", "-c", "echo typed >\"$0\" || ls -x /dev/pts", path.to_str().expect("text")];
    world.netbox(&FLAGS).on(&terminal).exec(&words).exits_with(0);
    assert!(terminal.shows("ptmx").ends_with("0  "), "the command's own, and no other");
    assert_eq!(other.all(), b"");
    world.bare().on(&terminal).exec(&words).exits_with(0);
    other.shows("typed");
}

fn modes_and_size_come_along(world: &World) {
    let terminal = Terminal::new();
    terminal.resize(33, 123);
    let mut modes = terminal.modes();
    modes.control_chars[SpecialCharacterIndices::VINTR as usize] = 0x18;
    modes.local_flags.toggle(nix::sys::termios::LocalFlags::ECHOCTL);
    tcsetattr(terminal.inner(), SetArg::TCSANOW, &modes).expect("a terminal has modes");
    let words = ["sh", "-c", "stty -a; echo end"];
    world.bare().on(&terminal).exec(&words).exits_with(0);
    let bare = terminal.shows("end\r\n");
    assert!(bare.contains("rows 33; columns 123") && bare.contains("intr = ^X"), "{bare}");
    world.netbox(&FLAGS).on(&terminal).exec(&words).exits_with(0);
    assert_eq!(terminal.shows("end\r\n"), bare);
}

fn a_new_size_arrives(world: &World) {
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 1000 & wait; done";
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let terminal = Terminal::new();
        let running = run.on(&terminal).start(&["sh", "-c", script]);
        terminal.shows("ready\r\n");
        for (rows, columns) in [(44, 99), (10, 20), (11, 20)] {
            terminal.resize(rows, columns);
            terminal.shows(&format!("{rows} {columns}\r\n"));
        }
        terminal.enter("\x1c");
        running.finish();
    }
}

fn what_is_typed_is_echoed_and_read(world: &World) {
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let terminal = Terminal::new();
        let running = run.on(&terminal).start(&["sh", "-c", "echo ready; cat; echo the end"]);
        terminal.shows("ready\r\n");
        terminal.enter("a line\x7f\x7fst\r");
        terminal.shows("st\r\n");
        terminal.shows("a list\r\n");
        terminal.enter("\x04");
        terminal.shows("the end\r\n");
        running.finish();
    }
}

/// At a terminal, netbox dies of the interruption that its command died of.
#[track_caller]
fn ends_by(outcome: &Outcome, signal: Signal) {
    match signal {
        Signal::SIGINT => assert_eq!(outcome.signal, Some(signal as i32), "{outcome}"),
        signal => {
            outcome.exits_with(128 + signal as i32);
        }
    }
}

fn control_keys_are_signals_inside(world: &World) {
    for (key, signal) in [("\x03", Signal::SIGINT), ("\x1c", Signal::SIGQUIT)] {
        let terminal = Terminal::new();
        let running = world.netbox(&FLAGS).on(&terminal).start(&["sh", "-c", "echo ready; exec sleep 1000"]);
        terminal.shows("ready\r\n");
        terminal.enter(key);
        ends_by(&running.finish(), signal);
    }
    // One that catches it goes on, however often it comes. Python, for shells miss what comes just before they wait.
    let terminal = Terminal::new();
    let script = "
from signal import *
pthread_sigmask(SIG_BLOCK, {SIGINT})
print('ready', flush=True)
for _ in range(5):
    sigwait({SIGINT})
    print('caught', flush=True)
exit(7)
";
    let running = world.netbox(&FLAGS).on(&terminal).start(&["python3", "-c", script]);
    terminal.shows("ready\r\n");
    for _ in 0..5 {
        terminal.enter("\x03");
        terminal.shows("caught\r\n");
    }
    running.finish().exits_with(7);
}

/// With netbox in raw mode (all are terminals), and with the user's terminal as it was (the input is another file).
fn output_is_complete_and_the_same_as_without_netbox(world: &World) {
    let scripts = [
        "seq 100000",
        "printf 'a\\nb\\r\\n\\tc\\r\\r\\nd\\r'; printf '\\nend\\r\\r'",
        "stty -opost; seq 3; stty opost; seq 3",
    ];
    for script in scripts {
        for is_terminal in [true, false] {
            let written = |run: Run| {
                let terminal = Terminal::new();
                let run = run.on(&terminal);
                let run = if is_terminal { run } else { run.stdin_from(null()) };
                let script = format!("{script}; echo all >&2");
                run.exec(&["sh", "-c", &script]).exits_with(0);
                terminal.shows("all\r\n");
                String::from_utf8(terminal.all()).expect("text")
            };
            let (bare, inside) = (written(world.bare()), written(world.netbox(&FLAGS)));
            assert!(bare == inside, "{script}, {is_terminal}: {} bytes and {}", bare.len(), inside.len());
        }
    }
}

fn the_last_words_of_a_command_are_not_lost(world: &World) {
    for round in 0..40 {
        let terminal = Terminal::new();
        let words = format!("last words {round}");
        world.netbox(&FLAGS).on(&terminal).exec(&["printf", &words]).exits_with(0);
        terminal.shows(&words);
    }
}

/// More than any buffer on the way holds.
fn much_can_be_pasted(world: &World) {
    let terminal = Terminal::new();
    let script = "stty -echo; echo ready; wc -c";
    let running = world.netbox(&FLAGS).on(&terminal).start(&["sh", "-c", script]);
    terminal.shows("ready\r\n");
    let line = "x".repeat(99);
    for _ in 0..5000 {
        terminal.enter_line(&line);
    }
    terminal.enter("\x04");
    terminal.shows("500000\r\n");
    running.finish().exits_with(0);
}

/// The window that scrolls no further must not stop what runs behind it.
fn output_that_nobody_takes_holds_up_no_connection(world: &World) {
    let host = world.zone().host("held-up");
    let mut terminal = Terminal::unseen();
    let fetched = world.fresh_path("files").with_extension("fetched");
    let script = "while :; do echo flood; done & curl -sS -o \"$1\" \"http://$0/\"; kill $!";
    let words = ["sh", "-c", script, &host.name, fetched.to_str().expect("text")];
    let running = world.netbox(&["--allow", &host.name]).on(&terminal).start(&words);
    assert!(eventually(|| fs::metadata(&fetched).is_ok_and(|file| file.len() > 0)), "nothing was fetched");
    terminal.look();
    running.finish().exits_with(0).allowed(&host.name, 80, "listed");
}

fn modes_are_restored_whatever_ends_the_run(world: &World) {
    let terminal = Terminal::new();
    let before = terminal.modes();
    let ends: [(&[&str], i32); 5] = [
        (&["true"], 0),
        (&["sh", "-c", "stty raw -echo; exit 3"], 3),
        (&["sh", "-c", "kill -9 $$"], 128 + 9),
        (&["no-such-program"], 127),
        (&["/dev/null"], 126),
    ];
    for (words, code) in ends {
        world.netbox(&FLAGS).on(&terminal).exec(words).exits_with(code);
        assert_eq!(terminal.modes(), before, "after {words:?}");
    }
    world.netbox(&["--mode", "none", "--timeout", "100ms"]).on(&terminal).exec(&["sleep", "1000"]).exits_with(124);
    assert_eq!(terminal.modes(), before, "after the time was over");
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGINT, Signal::SIGUSR1] {
        let running = world.netbox(&FLAGS).on(&terminal).start(&["sh", "-c", "echo ready; exec sleep 1000"]);
        terminal.shows("ready\r\n");
        assert_ne!(terminal.modes(), before, "the keys are the command's");
        running.signal(signal);
        ends_by(&running.finish(), signal);
        assert_eq!(terminal.modes(), before, "after {signal}");
    }
}

fn what_a_killed_program_did_to_the_screen_is_undone(world: &World) {
    let modes = "\\033[?1049h\\033[?25l\\033[?2004h\\033[?1000h";
    let undone = "\x1b[?25h\x1b[?1000l\x1b[?1049l\x1b[?2004l";
    let all = |end: &str| {
        let terminal = Terminal::new();
        let script = format!("printf '{modes}full screen'; {end}");
        let outcome = world.netbox(&FLAGS).on(&terminal).exec(&["sh", "-c", &script]);
        world.bare().on(&terminal).exec(&["echo", "behind it"]);
        terminal.shows("full screen");
        (terminal.shows("behind it"), outcome)
    };
    let (rest, outcome) = all("kill -9 $$");
    assert_eq!(rest, undone, "{outcome}");
    // A shell that ran it tells by its code.
    let (rest, outcome) = all("sh -c 'kill -9 $$'; exit $?");
    assert!(rest.ends_with(undone), "{rest:?} {outcome}");
    // What a program does on purpose stays.
    let (rest, outcome) = all("exit 1");
    assert_eq!(rest, "", "{outcome}");
}

fn typing_for_others_is_refused(world: &World) {
    let script = "
import errno, fcntl, termios
try:
    fcntl.ioctl(0, termios.TIOCSTI, b'x')
    print('typed')
except OSError as error:
    print('refused', errno.errorcode[error.errno])
";
    let said = |run: Run| {
        let terminal = Terminal::new();
        run.on(&terminal).exec(&["python3", "-c", script]).exits_with(0);
        terminal.shows("ed");
        terminal.shows("\r\n")
    };
    // A kernel that lets nobody do it says something else.
    assert!(["", " EIO"].contains(&said(world.bare()).as_str()));
    assert_eq!(said(world.netbox(&FLAGS)), " EPERM");
}

fn closing_the_window_hangs_up(world: &World) {
    let script = "trap 'echo hung up >\"$0\"; exit 4' HUP; echo ready >\"$0\"; sleep 1000 & wait; exit 5";
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let terminal = Terminal::unseen();
        let report = world.fresh_path("files").with_extension("report");
        let reports = |text: &str| fs::read_to_string(&report).is_ok_and(|written| written == text);
        let running = run.on(&terminal).start(&["sh", "-c", script, report.to_str().expect("text")]);
        assert!(eventually(|| reports("ready\n")), "it never ran");
        // Its fellows in the shell's session would be sent the signal by the shell.
        thread::spawn(move || terminal.close()).join().expect("nothing can fail");
        running.finish().exits_with(4);
        assert!(reports("hung up\n"), "it was not told");
    }
}
