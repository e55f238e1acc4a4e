//! Programs that live on a terminal, typed to by a person.

use std::fs;

use crate::programs::{LESS, PYTHON, TMUX, TOP, VIM};
use crate::run::Running;
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

use super::terminal_jobs::{PROMPT, Window};

tests![
    vim_edits_on_its_screen needs [VIM],
    vim_is_stopped_and_comes_back needs [VIM],
    less_pages_through_a_file needs [LESS],
    less_pages_through_what_is_piped_to_it needs [LESS],
    a_pager_outside_pages_through_what_the_command_writes needs [LESS],
    top_counts_the_processes_of_the_sandbox needs [TOP],
    python_answers_and_is_interrupted needs [PYTHON],
    tmux_shows_a_shell needs [TMUX],
];

fn start(world: &World, terminal: &Terminal, words: &[&str]) -> Running {
    world.netbox(&["--mode", "none"]).on(terminal).env("TERM", "xterm").env("SHELL", "/bin/sh").start(words)
}

fn vim_edits_on_its_screen(world: &World) {
    let (terminal, file) = (Terminal::new(), world.fresh_path("home"));
    let vim = start(world, &terminal, &["vim", "-u", "NONE", file.to_str().expect("text")]);
    terminal.shows("[New");
    terminal.enter("ione line\rand another");
    terminal.shows("another");
    terminal.enter("\x1b:wq\r");
    vim.finish().exits_with(0);
    assert_eq!(fs::read_to_string(file).expect("vim wrote it"), "one line\nand another\n");
}

fn vim_is_stopped_and_comes_back(world: &World) {
    let window = Window::new(world);
    window.line("export TERM=xterm");
    window.shows(PROMPT);
    window.line(&format!("{} run --mode none -q -- vim -u NONE", world.netbox_path().display()));
    window.shows("version ");
    for round in 0..5 {
        window.terminal.enter(&format!("oword-{round}-\x1b"));
        window.shows(&format!("word-{round}-"));
        window.terminal.enter("\x1a");
        window.shows("Stopped");
        window.shows(PROMPT);
        window.line("fg");
        // It draws its screen anew.
        window.shows(&format!("word-{round}-"));
    }
    window.terminal.enter(":q!\r");
    window.shows(PROMPT);
    assert_eq!(window.asks("$?"), "0");
    window.close();
}

fn less_pages_through_a_file(world: &World) {
    let (terminal, file) = (Terminal::new(), world.fresh_path("home"));
    fs::write(&file, (0..1000).map(|number| format!("line {number}\n")).collect::<String>()).expect("own folder");
    let less = start(world, &terminal, &["less", file.to_str().expect("text")]);
    terminal.shows("line 5\r\n");
    terminal.enter("/line 777\r");
    terminal.shows("line 799\r\n");
    terminal.enter("q");
    less.finish().exits_with(0);
}

fn less_pages_through_what_is_piped_to_it(world: &World) {
    let window = Window::new(world);
    window.line(&format!("seq 1000 | TERM=xterm {} run --mode none -q -- less", world.netbox_path().display()));
    window.shows("5\r\n");
    window.terminal.enter("/777\r");
    window.shows("799\r\n");
    window.terminal.enter("q");
    window.shows(PROMPT);
    window.close();
}

fn a_pager_outside_pages_through_what_the_command_writes(world: &World) {
    let window = Window::new(world);
    window.line(&format!("{} run --mode none -q -- seq 1000 | TERM=xterm less", world.netbox_path().display()));
    window.shows("5\r\n");
    window.terminal.enter("/777\r");
    window.shows("799\r\n");
    window.terminal.enter("q");
    window.shows(PROMPT);
    window.close();
}

fn top_counts_the_processes_of_the_sandbox(world: &World) {
    let terminal = Terminal::new();
    let top = start(world, &terminal, &["top"]);
    terminal.shows("Tasks:");
    let count = terminal.shows("total");
    assert!(count.contains('2'), "pid 1 and itself: {count}");
    terminal.enter("q");
    top.finish().exits_with(0);
}

fn python_answers_and_is_interrupted(world: &World) {
    let terminal = Terminal::new();
    let python = start(world, &terminal, &["python3", "-q"]);
    terminal.shows(">>> ");
    terminal.enter_line("print('it', 'is', 40 + 2)");
    terminal.shows("it is 42\r\n");
    terminal.shows(">>> ");
    // Not a call that sleeps: Python misses what comes just before that.
    terminal.enter_line("print('sp' + 'ins', flush=True); any(False for _ in iter(int, 1))");
    terminal.shows("spins\r\n");
    terminal.enter("\x03");
    terminal.shows("KeyboardInterrupt");
    terminal.shows(">>> ");
    terminal.enter_line("exit(3)");
    python.finish().exits_with(3);
}

fn tmux_shows_a_shell(world: &World) {
    let terminal = Terminal::new();
    let socket = world.fresh_path("home").with_extension("tmux");
    let socket = socket.to_str().expect("text");
    let tmux = start(world, &terminal, &["tmux", "-S", socket, "-f", "/dev/null", "new", "exec sh -i"]);
    terminal.shows("0:");
    terminal.enter_line("echo it is $((40 + 2))");
    terminal.shows("it is 42");
    terminal.resize(30, 200);
    // One line is tmux's own. It takes notice some time after it was told.
    let asks = || {
        terminal.enter_line("stty size; echo asked $((40 + 2))");
        terminal.shows("asked 42")
    };
    while !asks().contains("29 200") {}
    terminal.enter_line("exit");
    tmux.finish().exits_with(0);
}
