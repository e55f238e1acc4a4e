//! The sums of a run: how much was allowed and refused, and what to write to allow it.

use netbox_config::{Reason, RuleRef};
use serde::{Deserialize, Serialize};

use super::line::{HINT, HOST, NEAR, cut};
use super::{CloseEvent, DecisionEvent, End, LateRefusal, Verdict};

/// How many different refusals are kept apart. A program can make up any number of names.
pub const MAX_GROUPS: usize = 64;

/// How many different things that passed in audit mode are kept apart: they are what a list is made from.
pub const MAX_AUDITED: usize = 1024;

/// How a rule begins that looks at no first bytes.
const RAW: &str = "tcp://";

/// The sums of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Connections (requests, on HTTP) that the policy let through.
    pub allowed: u64,
    /// Those that were refused, with verdict `deny` or late.
    pub denied: u64,
    /// Those that were refused because they made no sense.
    pub malformed: u64,
    /// Those that were allowed and failed on the far side.
    pub failed: u64,
    /// What was refused (`denied` and `malformed`), in the order of its first time.
    pub refused: Vec<Refused>,
    /// What passed although no rule allows it, in audit mode (`reason`: why it would have been refused; `hint`: the rule
    /// that would let all of it through). Not what failed on the far side.
    pub audited: Vec<Refused>,
    /// How many further ones there were beyond the [`MAX_AUDITED`] kinds in `audited`.
    pub others_audited: u64,
    /// What was allowed and failed on the far side, likewise.
    pub failures: Vec<Refused>,
    /// What was reached, in the order in which it was first done with.
    pub reached: Vec<Reached>,
    /// How many further connections there were beyond the [`MAX_GROUPS`] hosts in `reached`.
    pub others_reached: u64,
    /// How many further refusals there were beyond the [`MAX_GROUPS`] kinds in `refused`.
    pub others: u64,
}

/// One kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The name or address; escaped and cut, so that it can be shown.
    pub host: String,
    /// The port, where it was known.
    pub port: Option<u16>,
    /// Why.
    pub reason: Reason,
    /// How often.
    pub count: u64,
    /// The rule that would allow it, where one can; escaped and cut as `host` is.
    pub hint: Option<String>,
    /// What almost allowed it; escaped and cut likewise.
    pub near: Option<String>,
    /// The rule that refused it and its place, where one did: "`*.example.com` (config.toml:3:10)"; likewise.
    pub by: Option<String>,
}

/// A host that was reached, on one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// The name or address; escaped and cut, so that it can be shown.
    pub host: String,
    /// The port, where it was known.
    pub port: Option<u16>,
    /// By how many connections (requests, on HTTP).
    pub count: u64,
    /// Bytes that the sandbox sent there.
    pub sent: u64,
    /// Bytes that it received from there.
    pub received: u64,
}

/// The counts of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub allowed: u64,
    pub denied: u64,
    pub malformed: u64,
    pub failed: u64,
}

/// The sums as they are kept.
#[derive(Default)]
pub struct Sums(Summary);

/// What is told of one of them.
struct Seen<'s> {
    reason: Reason,
    host: &'s str,
    port: Option<u16>,
    hint: Option<&'s str>,
    near: Option<&'s str>,
    /// The rule that decided.
    rule: Option<&'s RuleRef>,
}

impl Sums {
    pub fn decision(&mut self, decision: DecisionEvent) {
        let seen = |reason| Seen {
            reason,
            host: &decision.host,
            port: decision.port,
            hint: decision.hint.as_deref(),
            near: decision.near.as_deref(),
            rule: decision.rule.as_ref(),
        };
        match Verdict::of(decision.reason) {
            Verdict::Allow => {
                self.0.allowed += 1;
                if let Some(would) = decision.would {
                    self.audited(&seen(would));
                }
            }
            Verdict::Error if decision.reason != Reason::Malformed => {
                self.0.failed += 1;
                group(&mut self.0.failures, &Seen { hint: None, ..seen(decision.reason) }, MAX_GROUPS);
            }
            Verdict::Deny | Verdict::Error => self.refused(&seen(decision.reason)),
        }
    }

    /// Adds the sums of somebody else. What they kept apart beyond the bounds here counts among the others.
    pub fn add(&mut self, more: &Summary) {
        let sums = &mut self.0;
        for (sum, more) in [
            (&mut sums.allowed, more.allowed),
            (&mut sums.denied, more.denied),
            (&mut sums.malformed, more.malformed),
            (&mut sums.failed, more.failed),
            (&mut sums.others, more.others),
            (&mut sums.others_audited, more.others_audited),
            (&mut sums.others_reached, more.others_reached),
        ] {
            *sum = sum.saturating_add(more);
        }
        sums.others = sums.others.saturating_add(merge(&mut sums.refused, &more.refused, MAX_GROUPS));
        sums.others_audited = sums.others_audited.saturating_add(merge(&mut sums.audited, &more.audited, MAX_AUDITED));
        merge(&mut sums.failures, &more.failures, MAX_GROUPS);
        for more in &more.reached {
            let same = |one: &&mut Reached| (&one.host, one.port) == (&more.host, more.port);
            if let Some(one) = sums.reached.iter_mut().find(same) {
                one.count = one.count.saturating_add(more.count);
                one.sent = one.sent.saturating_add(more.sent);
                one.received = one.received.saturating_add(more.received);
            } else if sums.reached.len() < MAX_GROUPS {
                sums.reached.push(more.clone());
            } else {
                sums.others_reached = sums.others_reached.saturating_add(more.count);
            }
        }
    }

    pub fn close(&mut self, close: CloseEvent) {
        if let End::Refused(LateRefusal { reason, host, port, hint }) = &close.end {
            self.refused(&Seen { reason: *reason, host, port: *port, hint: hint.as_deref(), near: None, rule: None });
        }
        if let Some(passed) = &close.passed_late {
            let (host, port, hint) = (&*close.host, close.port, passed.hint.as_deref());
            self.audited(&Seen { reason: passed.would, host, port, hint, near: None, rule: None });
        }
        // What was refused late was reached before, unless nothing had been let through.
        let untold = matches!(close.end, End::Refused(_)) && close.sent == 0;
        if close.addr.is_some() && !untold {
            self.reached(&close);
        }
    }

    fn reached(&mut self, close: &CloseEvent) {
        let host = cut(&close.host, HOST);
        let known = self.0.reached.iter_mut().find(|reached| (&*reached.host, reached.port) == (&*host, close.port));
        if let Some(reached) = known {
            reached.count += 1;
            reached.sent = reached.sent.saturating_add(close.sent);
            reached.received = reached.received.saturating_add(close.received);
        } else if self.0.reached.len() < MAX_GROUPS {
            let CloseEvent { port, sent, received, .. } = *close;
            self.0.reached.push(Reached { host, port, count: 1, sent, received });
        } else {
            self.0.others_reached += 1;
        }
    }

    /// The sums of the `exit` event: allowed and denied.
    pub fn counts(&self) -> (u64, u64) {
        (self.0.allowed, self.0.denied)
    }

    pub fn totals(&self) -> Totals {
        let Summary { allowed, denied, malformed, failed, .. } = self.0;
        Totals { allowed, denied, malformed, failed }
    }

    pub fn summary(&self) -> Summary {
        self.0.clone()
    }

    fn audited(&mut self, seen: &Seen<'_>) {
        if !group(&mut self.0.audited, seen, MAX_AUDITED) {
            self.0.others_audited += 1;
            return;
        }
        // One connection may have to be raw and another not: the wider rule lets both through.
        let host = cut(seen.host, HOST);
        let same = |group: &&mut Refused| (&*group.host, group.port, group.reason) == (&*host, seen.port, seen.reason);
        if let (Some(hint), Some(group)) = (seen.hint, self.0.audited.iter_mut().find(same))
            && (group.hint.is_none() || hint.starts_with(RAW))
        {
            group.hint = Some(cut(hint, HINT));
        }
    }

    fn refused(&mut self, seen: &Seen<'_>) {
        match seen.reason {
            Reason::Malformed => self.0.malformed += 1,
            _ => self.0.denied += 1,
        }
        if !group(&mut self.0.refused, seen, MAX_GROUPS) {
            self.0.others += 1;
        }
    }
}

/// Adds groups of the same kind, as texts that are escaped and cut already. How many found no room.
fn merge(groups: &mut Vec<Refused>, more: &[Refused], most: usize) -> u64 {
    let mut others: u64 = 0;
    for more in more {
        let same = |one: &&mut Refused| (&one.host, one.port, one.reason) == (&more.host, more.port, more.reason);
        if let Some(one) = groups.iter_mut().find(same) {
            one.count = one.count.saturating_add(more.count);
        } else if groups.len() < most {
            groups.push(more.clone());
        } else {
            others = others.saturating_add(more.count);
        }
    }
    others
}

/// Counts one in its group. `false`: it has none, and there is room for no more.
fn group(groups: &mut Vec<Refused>, seen: &Seen<'_>, most: usize) -> bool {
    let Seen { reason, port, .. } = *seen;
    let host = cut(seen.host, HOST);
    let same = |group: &&mut Refused| (&*group.host, group.port, group.reason) == (&*host, port, reason);
    if let Some(group) = groups.iter_mut().find(same) {
        group.count += 1;
    } else if groups.len() < most {
        let hint = seen.hint.map(|hint| cut(hint, HINT));
        let near = seen.near.map(|near| cut(near, NEAR));
        // What was allowed and failed, or passes in audit mode, is not the rule's doing.
        let rule = seen.rule.filter(|_| Verdict::of(reason) == Verdict::Deny);
        let by = rule.map(|rule| cut(&format!("`{}` ({})", rule.text, rule.source), NEAR));
        groups.push(Refused { host, port, reason, count: 1, hint, near, by });
    } else {
        return false;
    }
    true
}
