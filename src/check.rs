//! `netbox check`: would a target be allowed, and by which rule?

use std::io::{Write, stdout};
use std::sync::Arc;

use netbox_config::{CheckTarget, Decision, HostFacts, Policy, Reason, RuleRef, Target, quote};
use netbox_proxy::facts::Facts;
use serde_json::{Value, json};

use crate::cli::CheckArguments;
use crate::policy::{self, Asking};
use crate::say;

const REFUSED: u8 = 1;
const MALFORMED: u8 = 2;

/// What is said of one target.
struct Answer {
    verdict: &'static str,
    reason: Reason,
    target: Option<Target>,
    rule: Option<RuleRef>,
    /// Where the ceiling is that leaves the target out.
    ceiling: Option<Arc<str>>,
    /// What is wrong with a malformed target, or the rule that would allow a refused one.
    hint: Option<String>,
    /// What almost allowed it.
    near: Option<String>,
    code: u8,
}

/// Judges every target. The value is the exit code: the worst of them.
pub fn check(arguments: &CheckArguments) -> u8 {
    let pinned = arguments.project.trust_project.as_deref();
    let policy = match policy::load(&arguments.policy, pinned, Asking::Nobody) {
        Ok(effective) => {
            effective.passed_over.iter().for_each(say::note);
            effective.compiled.into_policy()
        }
        Err(why) => {
            say::error(&why, why.hint.as_deref());
            return MALFORMED;
        }
    };
    // The machine's own addresses and its neighbours are refused by `run`, so they are here. No name is looked up.
    let facts = Facts::new(Vec::new()).current();
    let mut worst = 0;
    let mut out = stdout().lock();
    for text in &arguments.targets {
        let answer = judge(text, &policy, &facts);
        worst = worst.max(answer.code);
        let line = if arguments.json { answer.json(text).to_string() } else { answer.line(text) };
        if let Err(error) = writeln!(out, "{line}") {
            say::error(format_args!("cannot write to stdout: {error}"), None);
            return crate::FAILED;
        }
    }
    worst
}

fn judge(text: &str, policy: &Policy, facts: &HostFacts) -> Answer {
    let target = match CheckTarget::parse(text) {
        Ok(check) => check.into_target(),
        Err(error) => {
            return Answer {
                verdict: "error",
                reason: Reason::Malformed,
                target: None,
                rule: None,
                ceiling: None,
                hint: Some(error.to_string()),
                near: None,
                code: MALFORMED,
            };
        }
    };
    match policy.decide(&target, facts) {
        Decision::Allow(permit) => Answer {
            verdict: "allow",
            reason: permit.reason(),
            rule: permit.rule(),
            ceiling: None,
            target: Some(target),
            hint: None,
            near: None,
            code: 0,
        },
        Decision::Refuse(refusal) => Answer {
            verdict: "deny",
            reason: refusal.reason(),
            rule: refusal.rule(),
            ceiling: refusal.ceiling(),
            hint: refusal.hint(&target),
            near: policy.near_miss(&target, &refusal).map(|near| near.to_string()),
            target: Some(target),
            code: REFUSED,
        },
    }
}

impl Answer {
    fn json(&self, text: &str) -> Value {
        json!({
            "target": text,
            "verdict": self.verdict,
            "reason": self.reason.as_str(),
            "host": self.target.as_ref().map(|target| target.host().to_string()),
            "port": self.target.as_ref().map(|target| target.port().get()),
            "rule": self.rule.as_ref().map(|rule| json!({ "text": &*rule.text, "source": &*rule.source })),
            "hint": self.hint,
            "near": self.near,
        })
    }

    fn line(&self, text: &str) -> String {
        let shown = self.target.as_ref().map_or_else(|| quote(text.as_bytes()).to_string(), ToString::to_string);
        let mut line = format!("{:5}  {shown}  {}", self.verdict, self.reason);
        match (&self.ceiling, &self.rule) {
            (Some(place), _) => line.push_str(&format!("  outside the ceiling of {place}")),
            (None, Some(rule)) => line.push_str(&format!("  by `{}` ({})", rule.text, rule.source)),
            (None, None) => {}
        }
        match (&self.hint, self.code) {
            (Some(hint), REFUSED) => line.push_str(&format!("  to allow it: --allow '{hint}'")),
            (Some(why), _) => line.push_str(&format!("  {why}")),
            (None, _) => {}
        }
        if let Some(near) = &self.near {
            line.push_str(&format!("\n       near: {near}"));
        }
        line
    }
}
