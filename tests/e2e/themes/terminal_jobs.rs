//! Job control: netbox is a job of the shell that it was started from, and the command notices what a job notices.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::programs::STRACE;
use crate::run::{Running, eventually};
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

tests![
    ctrl_z_stops_the_job_and_fg_continues_it needs [],
    a_stopped_job_goes_on_in_the_background needs [],
    a_job_in_the_background_leaves_the_keys_to_the_shell needs [],
    a_job_in_the_background_writes_as_the_terminal_allows needs [],
    the_keys_are_the_pagers_behind_netbox needs [],
    the_keys_are_the_programs_before_netbox needs [],
    a_command_in_a_pipeline_gets_the_keys_when_it_reads needs [],
    ctrl_c_ends_a_pipeline needs [],
    a_pipeline_without_a_terminal_stops_and_goes_on needs [],
    the_modes_are_the_shells_while_the_job_is_stopped needs [],
    a_job_stopped_by_others_goes_on_with_the_keys needs [],
    a_script_without_job_control_stops_as_a_whole needs [],
    a_shell_inside_has_jobs_of_its_own needs [],
    a_shell_inside_can_suspend_itself needs [],
    a_stopped_job_can_be_killed needs [],
    ctrl_z_before_the_command_is_executed_is_one_like_any_other needs [STRACE],
];

/// Each process of netbox's waits that long before it changes its signals: microseconds.
const LONG: &str = "rt_sigprocmask:delay_enter=500000:when=1";

pub(super) const PROMPT: &str = "prompt> ";

/// A shell at its prompt, in a window of its own.
pub(super) struct Window<'w> {
    world: &'w World,
    pub(super) terminal: Terminal,
    shell: Running,
}

impl<'w> Window<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let terminal = Terminal::new();
        let run = world.bare().on(&terminal).env("PS1", PROMPT).env("TERM", "dumb");
        let shell = run.start(&["bash", "--norc", "--noprofile", "-i"]);
        let window = Self { world, terminal, shell };
        window.shows(PROMPT);
        window
    }

    /// The words that start netbox around a shell that does this.
    pub(super) fn netbox(&self, script: &str) -> String {
        format!("{} run --mode none -q -- bash -c '{script}'", self.world.netbox_path().display())
    }

    pub(super) fn line(&self, line: &str) {
        self.terminal.enter_line(line);
    }

    #[track_caller]
    pub(super) fn shows(&self, text: &str) -> String {
        self.terminal.shows(text)
    }

    /// The shell answers, and gives what this expands to.
    #[track_caller]
    pub(super) fn asks(&self, expression: &str) -> String {
        self.line(&format!("echo it-is-\"\"\"{expression}\"-so"));
        self.shows("\nit-is-");
        self.shows("-so\r\n")
    }

    /// The group in the foreground, other than the shell's own.
    fn job(&self) -> Pid {
        let job = self.terminal.foreground().expect("somebody is in the foreground");
        assert_ne!(job, self.shell.pid(), "the shell is in the foreground");
        job
    }

    /// The shell ends, and nothing is left of the modes that its jobs set.
    pub(super) fn close(self) {
        self.line("exit 42");
        self.shell.finish().exits_with(42);
    }
}

/// Reads lines and says what it got.
const ECHO: &str = "echo ready; while read -r x; do echo got-$x-; done; echo end";

fn ctrl_z_stops_the_job_and_fg_continues_it(world: &World) {
    let window = Window::new(world);
    window.line(&window.netbox(ECHO));
    window.shows("ready\r\n");
    for round in 0..15 {
        window.line(&format!("one{round}"));
        window.shows(&format!("got-one{round}-\r\n"));
        window.terminal.enter("\x1a");
        window.shows("Stopped");
        window.shows(PROMPT);
        assert_eq!(window.asks("$((40 + 2))"), "42");
        window.line("fg");
        // At once, so that some of it is typed while the shell still has the terminal.
        window.line(&format!("two{round}"));
        window.shows(&format!("got-two{round}-\r\n"));
    }
    window.terminal.enter("\x04");
    window.shows("end\r\n");
    window.shows(PROMPT);
    assert_eq!(window.asks("$?"), "0");
    window.close();
}

fn a_stopped_job_goes_on_in_the_background(world: &World) {
    let window = Window::new(world);
    let fifo = world.fresh_path("files").with_extension("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("own folder");
    let script = format!("echo ready; read -r x <{}; echo got-$x-; read -r x; echo got-$x-", fifo.display());
    window.line(&window.netbox(&script));
    window.shows("ready\r\n");
    window.terminal.enter("\x1a");
    window.shows("Stopped");
    window.shows(PROMPT);
    window.line("bg");
    window.shows("&\r\n");
    window.shows(PROMPT);
    std::fs::write(&fifo, "word\n").expect("somebody reads");
    window.shows("got-word-\r\n");
    // Now it reads from the terminal, and is stopped again. The shell tells before its next prompt.
    while !window.asks("$(jobs)").contains("Stopped") {}
    window.line("fg");
    window.line("typed");
    window.shows("got-typed-\r\n");
    window.shows(PROMPT);
    window.close();
}

fn a_job_in_the_background_leaves_the_keys_to_the_shell(world: &World) {
    for _ in 0..5 {
        let window = Window::new(world);
        window.line(&format!("{} &", window.netbox(ECHO)));
        window.shows("ready\r\n");
        for number in 0..20 {
            assert_eq!(window.asks(&format!("$((40 + {number}))")), (40 + number).to_string());
        }
        while !window.asks("$(jobs)").contains("Stopped") {}
        window.line("fg");
        window.line("typed");
        window.shows("got-typed-\r\n");
        window.terminal.enter("\x04");
        window.shows("end\r\n");
        window.shows(PROMPT);
        window.close();
    }
}

fn a_job_in_the_background_writes_as_the_terminal_allows(world: &World) {
    let window = Window::new(world);
    window.line(&format!("{} &", window.netbox("echo written-$((1 + 1))")));
    window.shows("written-2\r\n");
    window.line("wait; stty tostop");
    window.line(&format!("{} &", window.netbox("echo written-$((1 + 2))")));
    while !window.asks("$(jobs)").contains("Stopped") {}
    assert!(!String::from_utf8_lossy(&window.terminal.all()).contains("written-3"));
    window.line("fg");
    window.shows("written-3\r\n");
    window.shows(PROMPT);
    window.close();
}

/// A program that waits for a key, as a pager does, behind a command that does not.
fn the_keys_are_the_pagers_behind_netbox(world: &World) {
    for _ in 0..5 {
        let window = Window::new(world);
        let pager = "{ cat; echo pager-$((1 + 1)); read -r key </dev/tty; echo key-$key-; }";
        window.line(&format!("{} | {pager}", window.netbox("echo output; echo note >&2")));
        window.shows("pager-2\r\n");
        window.line("word");
        window.shows("key-word-\r\n");
        window.close();
        // While the command still runs.
        let window = Window::new(world);
        let pager = "{ read -r line; echo pager-$((1 + 1)); read -r key </dev/tty; echo key-$key-; kill 0; }";
        window.line(&format!("{} | {pager}", window.netbox("echo output; sleep 1000")));
        window.shows("pager-2\r\n");
        window.line("word");
        window.shows("key-word-\r\n");
        window.close();
    }
}

/// A program that asks for a password, before a command that is to get its output.
fn the_keys_are_the_programs_before_netbox(world: &World) {
    for _ in 0..5 {
        let window = Window::new(world);
        let asks = "{ echo asks-$((1 + 1)) >/dev/tty; read -r word </dev/tty; echo word-$word-; }";
        window.line(&format!("{asks} | {}", window.netbox("cat")));
        window.shows("asks-2\r\n");
        window.line("secret");
        window.shows("word-secret-\r\n");
        window.close();
    }
}

fn a_command_in_a_pipeline_gets_the_keys_when_it_reads(world: &World) {
    let window = Window::new(world);
    window.line(&format!("{} | sed s/got/passed/", window.netbox("echo ready >&2; read -r x; echo got-$x-")));
    window.shows("ready\r\n");
    window.line("word");
    window.shows("passed-word-\r\n");
    window.shows(PROMPT);
    window.line(&format!("echo ready | {}", window.netbox("cat; read -r x </dev/tty; echo got-$x-")));
    window.shows("\nready\r\n");
    window.line("word");
    window.shows("got-word-\r\n");
    window.shows(PROMPT);
    // And it can be stopped.
    window.line(&format!("echo ready | {}", window.netbox("cat; read -r x </dev/tty; echo got-$x-")));
    window.shows("\nready\r\n");
    window.terminal.enter("\x1a");
    window.shows("Stopped");
    window.shows(PROMPT);
    window.line("fg");
    window.line("again");
    window.shows("got-again-\r\n");
    window.shows(PROMPT);
    window.close();
}

fn ctrl_c_ends_a_pipeline(world: &World) {
    let window = Window::new(world);
    window.line(&format!("{} | cat", window.netbox("echo ready; sleep 1000")));
    window.shows("\nready\r\n");
    window.terminal.enter("\x03");
    window.shows(PROMPT);
    assert_eq!(window.asks("${PIPESTATUS[0]}"), "130");
    window.close();
}

/// Its input and output are all pipes; the keys are signals to netbox then.
fn a_pipeline_without_a_terminal_stops_and_goes_on(world: &World) {
    let window = Window::new(world);
    let fifo = world.fresh_path("files").with_extension("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("own folder");
    // Opened while the last writer has not closed it yet, it reads as empty once.
    let script = format!("cat; while :; do read -r x <{} && echo got-$x-; done", fifo.display());
    window.line(&format!("echo ready | {} 2>&1 | cat", window.netbox(&script)));
    window.shows("\nready\r\n");
    for round in 0..5 {
        window.terminal.enter("\x1a");
        window.shows("Stopped");
        window.shows(PROMPT);
        window.line("fg");
        // It runs for sure when it has answered.
        std::fs::write(&fifo, format!("word{round}\n")).expect("somebody reads");
        window.shows(&format!("got-word{round}-\r\n"));
    }
    window.terminal.enter("\x03");
    window.shows(PROMPT);
    window.close();
}

fn the_modes_are_the_shells_while_the_job_is_stopped(world: &World) {
    let window = Window::new(world);
    window.line("stty -ixon; true");
    window.shows(PROMPT);
    assert_eq!(
        window.asks("$(stty -a | tr \" \" \"\\n\" | grep -E -x \"\\-?(ixon|echo|icanon)\" | xargs)"),
        "-ixon icanon echo"
    );
    window.line(&window.netbox("stty raw -echo; echo ready; read -r x; stty sane; echo got-$x-"));
    window.shows("\nready\n");
    let pid = window.job();
    kill(pid, Signal::SIGTSTP).expect("it runs");
    window.shows("Stopped");
    window.shows(PROMPT);
    let modes = "$(stty -a | tr \" \" \"\\n\" | grep -E -x \"\\-?(ixon|echo|icanon)\" | xargs)";
    assert_eq!(window.asks(modes), "-ixon icanon echo");
    window.line("fg");
    window.terminal.enter("word\n");
    window.shows("got-word");
    window.shows(PROMPT);
    assert_eq!(window.asks(modes), "-ixon icanon echo");
    window.close();
}

/// By a signal that cannot be caught, so that netbox learns of it afterwards.
fn a_job_stopped_by_others_goes_on_with_the_keys(world: &World) {
    for signal in [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN] {
        let window = Window::new(world);
        window.line(&window.netbox(ECHO));
        window.shows("ready\r\n");
        for round in 0..5 {
            kill(window.job(), signal).expect("it runs");
            window.shows("Stopped");
            window.shows(PROMPT);
            assert_eq!(window.asks("$((40 + 2))"), "42");
            window.line("fg");
            window.line(&format!("word{round}"));
            window.shows(&format!("got-word{round}-\r\n"));
        }
        window.terminal.enter("\x04");
        window.shows("end\r\n");
        window.shows(PROMPT);
        window.close();
    }
}

/// Such a shell is in the same group as what it runs.
fn a_script_without_job_control_stops_as_a_whole(world: &World) {
    let window = Window::new(world);
    let netbox = window.netbox("echo ready; read -r x; echo got-$x-").replace('\'', "\"").replace("$x", "\\$x");
    window.line(&format!("sh -c '{netbox}; echo after-$((1 + 1))'"));
    window.shows("\nready\r\n");
    window.terminal.enter("\x1a");
    window.shows("Stopped");
    window.shows(PROMPT);
    window.line("fg");
    window.line("word");
    window.shows("got-word-\r\n");
    window.shows("after-2\r\n");
    window.shows(PROMPT);
    window.close();
}

fn a_shell_inside_has_jobs_of_its_own(world: &World) {
    let window = Window::new(world);
    window.line(&format!(
        "{} run --mode none -q -- env PS1=\"in\"\"side> \" bash --norc -i",
        world.netbox_path().display()
    ));
    window.shows("inside> ");
    window.line("echo ready-$((1 + 1)); cat");
    window.shows("ready-2\r\n");
    for round in 0..5 {
        window.line(&format!("word{round}"));
        window.shows(&format!("word{round}\r\nword{round}\r\n"));
        window.terminal.enter("\x1a");
        window.shows("Stopped");
        window.shows("inside> ");
        window.line("jobs; fg");
        window.shows("cat\r\ncat\r\n");
    }
    // It is in the foreground for sure when it has answered.
    window.line("last");
    window.shows("last\r\nlast\r\n");
    window.terminal.enter("\x03");
    window.shows("inside> ");
    assert_eq!(window.asks("$?"), "130");
    window.line("sleep 1000 &");
    window.shows("inside> ");
    window.line("kill %1; wait %1; true");
    window.shows("Terminated");
    window.line("exit 7");
    window.shows(PROMPT);
    assert_eq!(window.asks("$?"), "7");
    window.close();
}

fn a_shell_inside_can_suspend_itself(world: &World) {
    let window = Window::new(world);
    window.line(&format!(
        "{} run --mode none -q -- env PS1=\"in\"\"side> \" bash --norc -i",
        world.netbox_path().display()
    ));
    window.shows("inside> ");
    for _ in 0..5 {
        window.line("suspend");
        window.shows("Stopped");
        window.shows(PROMPT);
        assert_eq!(window.asks("${NETBOX:-outside}"), "outside");
        window.line("fg");
        assert_eq!(window.asks("${NETBOX:-outside}"), "1");
    }
    window.line("exit");
    window.shows(PROMPT);
    window.close();
}

fn a_stopped_job_can_be_killed(world: &World) {
    let window = Window::new(world);
    window.line(&window.netbox("echo ready; exec sleep 1000"));
    window.shows("ready\r\n");
    window.terminal.enter("\x1a");
    window.shows("Stopped");
    window.shows(PROMPT);
    window.line("kill %1");
    // The shell tells before a prompt.
    while !window.shows(PROMPT).contains("Exit 143") {
        window.line("");
    }
    window.close();
}

/// The keys are the command's as soon as it is in the foreground, and that is before it executes the program.
fn ctrl_z_before_the_command_is_executed_is_one_like_any_other(world: &World) {
    let window = Window::new(world);
    let netbox = window.netbox("echo ready; read word; echo got-$word-");
    window.line(&format!("strace -f -o /dev/null -e trace=rt_sigprocmask -e inject={LONG} {netbox}"));
    assert!(eventually(|| has_its_terminal_and_not_run(window.shell.pid())), "the command is in the foreground");
    window.terminal.enter("\x1a");
    window.shows("Stopped");
    window.shows(PROMPT);
    window.line("fg");
    window.shows("ready\r\n");
    window.line("word");
    window.shows("got-word-\r\n");
    window.shows(PROMPT);
    window.close();
}

/// Whether a process below this one is still netbox by name, and leads the group in the foreground of its own terminal.
fn has_its_terminal_and_not_run(above: Pid) -> bool {
    // `pid (comm) state ppid pgrp session tty_nr tpgid …` (proc_pid_stat(5)).
    let fields = |pid: i32| -> Option<(String, [i32; 4])> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let rest: Vec<i32> = rest.split_whitespace().skip(1).take(5).map_while(|word| word.parse().ok()).collect();
        let &[parent, group, session, _, foreground] = rest.as_slice() else { return None };
        Some((name.to_owned(), [parent, group, session, foreground]))
    };
    let is_below = |pid: i32| {
        let above = above.as_raw();
        std::iter::successors(Some(pid), |pid| Some(fields(*pid)?.1[0]))
            .take_while(|pid| *pid > 1)
            .any(|pid| pid == above)
    };
    let all = fs::read_dir("/proc").expect("`/proc`").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).any(|pid: i32| {
        fields(pid).is_some_and(|(name, [_, group, session, foreground])| {
            name == "netbox" && group == pid && foreground == pid && session != pid
        }) && is_below(pid)
    })
}
