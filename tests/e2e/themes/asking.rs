//! At a terminal the person is asked whether the project's policy file is trusted, and sees what it says; where nobody can
//! answer, nobody is asked.

use crate::programs::{CURL, curl};
use crate::project::{FILE, Project, text};
use crate::terminal::Terminal;
use crate::tests;
use crate::themes::trust::{RAN, allow, refused};
use crate::world::World;

tests![
    at_a_terminal_it_is_shown_and_asked_about needs [CURL],
    no_answer_but_yes_is_a_yes needs [],
    what_was_typed_before_the_question_is_no_answer needs [],
    a_change_is_shown_as_such needs [],
    what_is_shown_cannot_steer_the_terminal needs [],
    what_is_too_long_to_be_shown_is_not_asked_about needs [],
    with_a_pipe_for_input_the_terminal_is_asked needs [],
    nobody_is_asked_in_ci_or_in_the_background needs [],
    commands_that_only_look_ask_nothing needs [],
];

fn at_a_terminal_it_is_shown_and_asked_about(world: &World) {
    let host = world.zone().host("asked");
    let project = Project::with(world, &format!("# mine\n{}", allow(&host)));
    let client = curl(&["http://asked.example.com/"]);
    let mark = world.mark();
    let terminal = Terminal::new();
    let running = project.netbox(&[]).on(&terminal).start(&client);
    let shown = terminal.shows("[y/N] ");
    for part in ["is not trusted yet", "  | # mine\r\n  | allow = [", "allows asked.example.com (netbox.toml:2:11)"] {
        assert!(shown.contains(part), "no `{part}` in `{shown}`");
    }
    world.assert_untouched(mark, &host);
    terminal.enter_line("y");
    running.finish().exits_with(0).allowed(&host.name, 80, "listed");
    // From then on nobody need be there.
    project.netbox(&[]).exec(&client).exits_with(0).says("hello");
}

fn no_answer_but_yes_is_a_yes(world: &World) {
    let project = Project::with(world, "allow = [\"answers.example.com\"]\n");
    for answer in ["", "n", "no", "yess", "maybe y", "\u{4}"] {
        let terminal = Terminal::new();
        let running = project.netbox(&[]).on(&terminal).start(&RAN);
        terminal.shows("[y/N] ");
        terminal.enter_line(answer);
        running.finish().exits_with(125);
        terminal.shows("error: `");
        terminal.shows("is not trusted");
    }
    project.words().exec(&["check", "answers.example.com"]).exits_with(2).complains("is not trusted");
    for answer in ["yes", "Y"] {
        let project = Project::with(world, "allow = [\"answers.example.com\"]\n");
        let terminal = Terminal::new();
        let running = project.netbox(&[]).on(&terminal).start(&RAN);
        terminal.shows("[y/N] ");
        terminal.enter_line(answer);
        terminal.shows("it ran");
        running.finish().exits_with(0);
    }
}

fn what_was_typed_before_the_question_is_no_answer(world: &World) {
    let project = Project::with(world, "allow = [\"answers.example.com\"]\n");
    let terminal = Terminal::new();
    terminal.enter_line("y");
    let running = project.netbox(&[]).on(&terminal).start(&RAN);
    terminal.shows("[y/N] ");
    terminal.enter_line("n");
    running.finish().exits_with(125);
    terminal.shows("is not trusted");
}

fn a_change_is_shown_as_such(world: &World) {
    let project = Project::trusted(world, "# one\n# two\nallow = [\"before.example.com\"]\n# three\n");
    project.write(FILE, "# one\n# two\nallow = [\"before.example.com\", \"more.example.com\"]\n# three\n");
    let terminal = Terminal::new();
    let running = project.netbox(&[]).on(&terminal).start(&RAN);
    let shown = terminal.shows("[y/N] ");
    for part in [
        "has changed since it was trusted",
        "\r\n   # two\r\n  -allow = [\"before.example.com\"]\r\n  +allow = [\"before.example.com\", \"more.example.com\"]\r\n   # three\r\n",
        "allows more.example.com (netbox.toml:3:33)",
    ] {
        assert!(shown.contains(part), "no `{part}` in `{shown}`");
    }
    assert!(!shown.contains("allows before.example.com"), "that is no change: `{shown}`");
    terminal.enter_line("n");
    running.finish().exits_with(125);
}

fn what_is_shown_cannot_steer_the_terminal(world: &World) {
    let project = Project::with(world, "# \u{202e}\u{200b}\nallow = [\"hostile.example.com\"]\n");
    let terminal = Terminal::new();
    let running = project.netbox(&[]).on(&terminal).start(&RAN);
    let shown = terminal.shows("[y/N] ");
    assert!(shown.contains(r"# \u{202e}\u{200b}") && !shown.contains('\u{202e}'), "`{shown}`");
    terminal.enter_line("n");
    running.finish().exits_with(125);
    // A line that is too long for the terminal is not continued at its edge, where it could look like netbox's own.
    project.write(FILE, format!("#{}netbox: nothing changes\nallow = [\"evil.example\"]\n", " ".repeat(390)));
    let terminal = Terminal::new();
    let running = project.netbox(&[]).on(&terminal).start(&RAN);
    let shown = terminal.shows("[y/N] ");
    assert!(shown.contains("\r\n  : ") && !shown.contains(&" ".repeat(110)), "`{shown}`");
    terminal.enter_line("n");
    running.finish().exits_with(125);
    // What is no policy at all is not shown raw either.
    for text in ["allow = [\"a\u{1b}[2Jb\"]\n", "\u{1b}]0;x\u{7} = 1\n", "# \u{1b}[8m\n"] {
        project.write(FILE, text);
        let outcome = project.netbox(&[]).exec(&RAN);
        refused(&outcome, "netbox.toml:1:");
        assert!(!outcome.stderr.iter().any(|byte| *byte != b'\n' && byte.is_ascii_control()), "{outcome}");
    }
}

/// Nobody trusts what nobody has seen, be it many lines, one long one, or what few lines come to.
fn what_is_too_long_to_be_shown_is_not_asked_about(world: &World) {
    let hosts: Vec<_> = (0..450).map(|number| format!("\"n{number}.example.com\"")).collect();
    let lines = format!("allow = [\n{}\n]\n", hosts.join(",\n"));
    let line = format!("# {}\nallow = [\"evil.example\"]\n", " ".repeat(50_000));
    let effect = format!("allow = [{}]\n", hosts.join(", "));
    for (text, is_narrow) in [(lines, true), (line, false), (effect, true)] {
        let project = Project::with(world, &text);
        let terminal = Terminal::new();
        project.netbox(&[]).on(&terminal).start(&RAN).finish().exits_with(125);
        let shown = terminal.shows("netbox trust");
        assert!(shown.contains("too long to be shown") && !shown.contains("[y/N]"), "`{shown}`");
        // Whoever has read it elsewhere can say so.
        project.words().exec(&["trust"]).exits_with(0);
        project.netbox(&[]).on(&terminal).start(&RAN).finish().exits_with(0);
        // Of a change all is shown, where what stands around it is not too long.
        project.write(FILE, format!("{text}# one more\n"));
        let terminal = Terminal::new();
        let running = project.netbox(&[]).on(&terminal).start(&RAN);
        if is_narrow {
            terminal.shows("[y/N] ");
            terminal.enter_line("y");
        }
        running.finish().exits_with(if is_narrow { 0 } else { 125 });
    }
}

fn with_a_pipe_for_input_the_terminal_is_asked(world: &World) {
    let project = Project::with(world, "allow = [\"pipe.example.com\"]\n");
    let terminal = Terminal::new();
    let mut running = project.netbox(&[]).on(&terminal).stdin_open().start(&["cat"]);
    terminal.shows("[y/N] ");
    terminal.enter_line("y");
    running.write(b"for the command\n");
    terminal.shows("for the command");
    running.close_stdin();
    running.finish().exits_with(0);
}

fn nobody_is_asked_in_ci_or_in_the_background(world: &World) {
    let project = Project::with(world, "allow = [\"background.example.com\"]\n");
    let terminal = Terminal::new();
    project.netbox(&[]).on(&terminal).env("CI", "true").start(&RAN).finish().exits_with(125);
    terminal.shows("no terminal to ask at");
    // A shell of that terminal puts it into a process group that is not the terminal's.
    let netbox = text(world.netbox_path()).to_owned();
    let script = format!("set -m; {netbox} run -- echo it ran & wait $!; echo \"code $?\"");
    project.bare().on(&terminal).start(&["sh", "-c", &script]).finish().exits_with(0);
    let shown = terminal.shows("code 125");
    assert!(shown.contains("no terminal to ask at") && !shown.contains("[y/N]"), "`{shown}`");
    // One that is redirected shows no question.
    let outcome = project.netbox(&[]).stdin_from(terminal.inner()).exec(&RAN);
    refused(&outcome, "no terminal to ask at");
}

fn commands_that_only_look_ask_nothing(world: &World) {
    let project = Project::with(world, "allow = [\"look.example.com\"]\n");
    let terminal = Terminal::new();
    for words in [&["check", "look.example.com"][..], &["run", "--dry-run", "--", "true"]] {
        let code = if words[0] == "check" { 2 } else { 125 };
        project.words().on(&terminal).start(words).finish().exits_with(code);
        let shown = terminal.shows("is not trusted");
        assert!(!shown.contains("[y/N]"), "`{shown}`");
    }
    project.words().exec(&["check", "--config", FILE, "look.example.com"]).exits_with(0).says("(netbox.toml:1:11)");
    assert!(!project.home.join(".local/state/netbox/trust").exists(), "nothing was remembered");
}
