//! `netbox learn`: runs a command in audit mode, and writes down the hosts that it needed.
//!
//! Theory of operation. Everything public passes, and what no rule allows is noted; what deny rules, ceilings and the guard
//! refuse stays refused, and is not proposed. The rules are added to the project's file as a person there would write them,
//! shown as a change, and written once somebody has said yes: a list that nobody has read would be no list to rely on.
//! The file is trusted by that, as by `netbox trust`.

pub mod edit;
mod needs;

use std::fmt::Write as _;

use netbox_config::Mode;
use netbox_proxy::events::Summary;

use crate::cli::LearnArguments;
use crate::policy::{Refused, Rewrite, Terminal, diff, shell_word, shown};
use crate::run::{self, Intent, Ran};
use crate::say::{self, Voice};
use crate::{FAILED, USAGE};

use needs::Needs;

/// Runs it. The value is the exit code.
pub fn learn(arguments: LearnArguments) -> u8 {
    let LearnArguments { yes, run: mut arguments } = arguments;
    let voice = Voice { quiet: arguments.quiet, verbose: arguments.verbose };
    let useless = [
        (arguments.policy.mode.is_some(), "--mode", "the command runs in mode `audit`"),
        (arguments.policy.no_config, "--no-config", "the rules are for the project's file"),
        (arguments.dry_run, "--dry-run", "what is needed shows only when the command runs"),
        (arguments.fail_on_block, "--fail-on-block", "the exit code is the command's"),
    ];
    if let Some((_, flag, why)) = useless.iter().find(|(is_typed, ..)| *is_typed) {
        return refuse(&Refused::usage(format!("`{flag}` is nothing for `netbox learn`: {why}")));
    }
    arguments.policy.mode = Some(Mode::Audit);
    let prepared = Intent::of(&arguments).and_then(|intent| Ok((Rewrite::of(&intent.effective)?, intent)));
    let (rewrite, intent) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return refuse(&why),
    };
    let profile = intent.effective.compiled.profile().map(str::to_owned);
    let Ran { code, events, has_run, .. } = match run::carry_out(arguments, voice, intent) {
        Ok(ran) => ran,
        Err(code) => return code,
    };
    events.exit(code.into());
    if !has_run {
        return code;
    }
    match conclude(&rewrite, profile.as_deref(), &events.summary(), code, yes) {
        Ok(()) => code,
        Err(why) => {
            say::error(&why, why.hint.as_deref());
            FAILED
        }
    }
}

fn refuse(why: &Refused) -> u8 {
    say::error(why, why.hint.as_deref());
    if why.is_usage { USAGE } else { FAILED }
}

/// Tells what was needed, and writes it where that is wanted.
fn conclude(rewrite: &Rewrite, profile: Option<&str>, summary: &Summary, code: u8, yes: bool) -> Result<(), Refused> {
    let needs = needs::needs(summary).map_err(|why| {
        Refused::new(format!("no rules are proposed: {why}"))
            .hint("allow what is meant yourself, or `*`, and learn the rest")
    })?;
    say::note(tell(&needs, summary, code));
    if needs.rules.is_empty() {
        return Ok(());
    }
    let cannot = |why| Refused::new(format!("cannot add rules to {}: {why}", shown(&rewrite.path)));
    let before = rewrite.before.as_deref().unwrap_or_default();
    let after = edit::add(before, profile, &needs.rules).map_err(cannot)?;
    // Whoever trusts a file has to have seen all of it.
    let change = if rewrite.is_known() { diff::changes(before, &after) } else { diff::whole(&after) };
    let text = format!("netbox: {}:\n\n{change}\n", shown(&rewrite.path));
    if yes {
        say::plain(&text);
    } else {
        let Some(mut terminal) = Terminal::find() else {
            say::plain(&text);
            say::note("nothing is written: there is no terminal to ask at; `--yes` writes it unasked");
            return Ok(());
        };
        if !change.is_all {
            let hint = "read it, trust it by `netbox trust`, and learn again";
            say::note(format_args!(
                "nothing is written: {} is too long to be shown here; {hint}",
                shown(&rewrite.path)
            ));
            return Ok(());
        }
        if !terminal.agrees(&text, "netbox: write this?") {
            say::note("nothing is written");
            return Ok(());
        }
    }
    rewrite.write(&after)?;
    if yes && !rewrite.is_known() {
        let (path, word) = (shown(&rewrite.path), shell_word(&rewrite.path));
        say::note(format_args!(
            "wrote {path}, and it does not count: what was in it before was not trusted; read it, then `netbox trust {word}`"
        ));
        return Ok(());
    }
    rewrite.trust(&after)?;
    say::note(format_args!("wrote {}", shown(&rewrite.path)));
    Ok(())
}

/// What the person should know of the run.
fn tell(needs: &Needs, summary: &Summary, code: u8) -> String {
    let mut text = match needs.rules.len() {
        0 => "the command took no host that is not allowed already".to_owned(),
        1 => "the command took 1 host that no rule allows".to_owned(),
        many => format!("the command took {many} hosts that no rule allows"),
    };
    if code != 0 {
        let _ = write!(text, "; it failed (exit code {code}), so it may need more");
    }
    let mut lines = |what: &str, ones: &mut dyn Iterator<Item = String>| {
        ones.for_each(|one| {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {what}{one}");
        });
    };
    let refused = summary.refused.iter().map(|refused| {
        let times = if refused.count > 1 { format!(", {} times", refused.count) } else { String::new() };
        format!("{} ({}){times}", crate::summary::place(&refused.host, refused.port), refused.reason)
    });
    lines("refused, and not proposed: ", &mut refused.into_iter());
    let failed = summary.failures.iter();
    let failed =
        failed.map(|failed| format!("{} ({})", crate::summary::place(&failed.host, failed.port), failed.reason));
    lines("failed on the far side, and not proposed: ", &mut failed.into_iter());
    lines("no rule can allow: ", &mut needs.hopeless.iter().cloned());
    lines("", &mut needs.shorter.iter().cloned());
    text
}
