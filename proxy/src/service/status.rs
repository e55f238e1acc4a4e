//! How a service is at one moment, for whoever asks over the control socket.
//!
//! Bounded, whatever tenants do: so many of them, and of each the longest connections and the first kinds of refusals. What
//! programs say of themselves stands in here as text of any kind; whoever shows it escapes it.

use std::collections::BTreeMap;
use std::time::Instant;

use netbox_config::Reason;
use serde::{Deserialize, Serialize};

use super::registry::{Tenant, TenantKind};
use crate::events::Verdict;
use crate::flow::{Asked, Flow};

/// How many tenants are told of.
pub const MOST_TENANTS: usize = 2000;

/// How many connections and kinds of refusals are told of, for all tenants together, and for each at least.
const MOST_DETAILS: usize = 8000;
const LEAST_DETAILS: usize = 2;
const MOST_DETAILS_OF_ONE: usize = 100;

/// How long a text may be, in bytes.
const MOST_TEXT: usize = 256;

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// For how long it has been there.
    pub uptime_seconds: u64,
    /// Whether it takes no more connections.
    pub draining: bool,
    /// The digest of the policy of clients without a role.
    pub policy: String,
    /// Where it listens.
    pub listening: Vec<String>,
    /// How often its files were read anew.
    pub reloads: u64,
    /// How often they could not be used.
    pub reloads_failed: u64,
    /// What was wrong the last time, if it was.
    pub reload_error: Option<String>,
    /// Who is carried, as far as whoever asks may know.
    pub tenants: Vec<TenantStatus>,
    /// How many more there are beyond [`MOST_TENANTS`].
    pub more_tenants: usize,
}

/// How one tenant is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantStatus {
    /// Its number.
    pub number: u64,
    /// See there.
    pub kind: TenantKind,
    /// What it calls itself.
    pub name: String,
    /// The number of its run, as in its events.
    pub session: String,
    /// The user that a sandbox belongs to.
    pub uid: Option<u32>,
    /// The process that attached it.
    pub pid: Option<i32>,
    /// For how long it has been there.
    pub seconds: u64,
    /// The mode of its policy.
    pub mode: String,
    /// The digest of its policy.
    pub policy: String,
    /// Connections that are open.
    pub open: usize,
    /// Those that there have been.
    pub connections: u64,
    /// Connections and requests that were allowed.
    pub allowed: u64,
    /// Those that were refused, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// Those that were allowed, and failed on the far side.
    pub failed: u64,
    /// Connections that ended since the policy changed.
    pub revoked: u64,
    /// Bytes that it sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
    /// DNS queries.
    pub dns_queries: u64,
    /// How often it reached each of its limits.
    pub limits: BTreeMap<String, u64>,
    /// Events that could not be written.
    pub events_dropped: u64,
    /// The connections that have been open longest.
    pub flows: Vec<FlowStatus>,
    /// What was refused.
    pub refusals: Vec<RefusalStatus>,
}

/// A connection that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowStatus {
    /// What it is for: `host:port`.
    pub target: String,
    /// Where it leads, once it was dialled.
    pub address: Option<String>,
    /// For how long.
    pub seconds: u64,
    /// Bytes that it sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
}

/// One kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalStatus {
    /// What was asked for.
    pub host: String,
    /// The port, where it was known.
    pub port: Option<u16>,
    /// Why.
    pub reason: Reason,
    /// How often.
    pub count: u64,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
}

/// How these tenants are. Also how many more there are.
#[must_use]
pub fn tenants(tenants: &[(u64, std::sync::Arc<Tenant>)]) -> (Vec<TenantStatus>, usize) {
    let told = tenants.len().min(MOST_TENANTS);
    let details = (MOST_DETAILS / told.max(1)).clamp(LEAST_DETAILS, MOST_DETAILS_OF_ONE);
    let statuses = tenants[..told].iter().map(|(number, tenant)| of(*number, tenant, details)).collect();
    (statuses, tenants.len() - told)
}

fn of(number: u64, tenant: &Tenant, details: usize) -> TenantStatus {
    let (session, policy, tally) = (&tenant.session, tenant.session.policy(), tenant.session.tally());
    let is_refusal = |reason: Reason| Verdict::of(reason) == Verdict::Deny || reason == Reason::Malformed;
    let refused: BTreeMap<_, _> = tally.decisions.iter().filter(|(reason, _)| is_refusal(**reason)).collect();
    let mut flows = session.flows.live();
    flows.sort_by_key(|flow| flow.since());
    let refusals = session.events.summary().refused.into_iter().take(details).map(|refused| RefusalStatus {
        host: cut(&refused.host),
        port: refused.port,
        reason: refused.reason,
        count: refused.count,
        hint: refused.hint.as_deref().map(cut),
    });
    TenantStatus {
        number,
        kind: tenant.kind,
        name: cut(&tenant.name),
        session: session.events.session().to_string(),
        uid: tenant.uid,
        pid: tenant.pid,
        seconds: tenant.since.elapsed().unwrap_or_default().as_secs(),
        mode: policy.mode().to_string(),
        policy: policy.digest(),
        open: session.connections(),
        connections: tally.connections,
        allowed: tally.with(Verdict::Allow),
        failed: tally.with(Verdict::Error) - tally.decisions.get(&Reason::Malformed).copied().unwrap_or(0),
        refused: refused.into_iter().map(|(reason, count)| (*reason, *count)).collect(),
        revoked: tally.ends.get("revoked").copied().unwrap_or(0),
        sent: tally.sent,
        received: tally.received,
        dns_queries: tally.dns_queries,
        limits: tally.bounds.iter().map(|(bound, count)| ((*bound).to_owned(), *count)).collect(),
        events_dropped: tally.events_dropped,
        flows: flows.iter().filter_map(|flow| flow_status(flow)).take(details).collect(),
        refusals: refusals.collect(),
    }
}

/// `None`: it has not been permitted anything yet.
fn flow_status(flow: &Flow) -> Option<FlowStatus> {
    let seen = flow.seen();
    let target = match seen.permitted?.asked {
        Asked::Target(target) => target,
        Asked::HostPort(door) => door.target(),
    };
    let (sent, received) = seen.counts.map_or((0, 0), |counts| (counts.sent.bytes(), counts.received.bytes()));
    Some(FlowStatus {
        target: cut(&target.to_string()),
        address: seen.address.map(|address| address.to_string()),
        seconds: Instant::now().saturating_duration_since(flow.since()).as_secs(),
        sent,
        received,
    })
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::capture::tests::world::{World, expect, expect_reset, send};
    use crate::service::frames::encode;
    use crate::service::registry::Registry;
    use crate::service::wire::{LONGEST_ATTACH, Told};

    fn tenant(world: &World, name: String) -> Tenant {
        let session = Arc::clone(&world.session);
        let (kind, since) = (TenantKind::Sandbox, SystemTime::now());
        Tenant { kind, uid: Some(1000), pid: Some(7), name, asked: None, session, since }
    }

    #[tokio::test]
    async fn a_tenant_is_shown_with_what_it_has_open_and_what_it_was_refused() {
        let mut world = World::new(&["github.com:22"]);
        let server = world.server("203.0.113.10:22").await;
        let mut client = world.connect("github.com:22").await;
        let mut far = server.accept().await;
        send(&mut far, "ready").await;
        expect(&mut client, "ready").await;
        let mut refused = world.connect("evil.example:22").await;
        expect_reset(&mut refused).await;
        let registry = Registry::roomy();
        let place = registry.enter(tenant(&world, "git\u{1b}[0m".into()));
        let (shown, more) = tenants(&registry.tenants());
        let [shown] = &shown[..] else { panic!("one, not {shown:?}") };
        assert_eq!((more, shown.open, shown.connections, shown.allowed), (0, 1, 2, 1));
        assert_eq!(shown.refused, BTreeMap::from([(Reason::NotListed, 1)]));
        let [flow] = &shown.flows[..] else { panic!("one, not {:?}", shown.flows) };
        assert_eq!((&*flow.target, flow.address.as_deref()), ("github.com:22", Some("203.0.113.10:22")));
        assert_eq!((flow.sent, flow.received), (0, 5));
        let [refusal] = &shown.refusals[..] else { panic!("one, not {:?}", shown.refusals) };
        assert_eq!((&*refusal.host, refusal.hint.as_deref()), ("evil.example", Some("evil.example:22")));

        let readings = registry.readings();
        assert_eq!((readings.len(), readings[0].tenants, readings[0].tally.connections), (1, 1, 2));
        drop(place);
        // What it did stays in the sums.
        let readings = registry.readings();
        assert_eq!((readings.len(), readings[0].tenants, readings[0].tally.connections), (1, 0, 2));
    }

    #[tokio::test]
    async fn the_state_of_any_number_of_tenants_fits_a_frame() {
        let world = World::new(&[]);
        let registry = Registry::roomy();
        let name = "\u{1}".repeat(1 << 10);
        let places: Vec<_> = (0..MOST_TENANTS + 5).map(|_| registry.enter(tenant(&world, name.clone()))).collect();
        let (tenants, more_tenants) = tenants(&registry.tenants());
        assert_eq!((tenants.len(), more_tenants, places.len()), (MOST_TENANTS, 5, MOST_TENANTS + 5));
        let status = Status {
            version: String::new(),
            pid: 1,
            uptime_seconds: 1,
            draining: false,
            policy: String::new(),
            listening: Vec::new(),
            reloads: 0,
            reloads_failed: 0,
            reload_error: None,
            tenants,
            more_tenants,
        };
        assert!(encode(&Told::Status(Box::new(status))).len() <= LONGEST_ATTACH + 4);
    }

    #[tokio::test]
    async fn there_are_only_so_many_labels() {
        use crate::metrics::{Label, MOST_LABELS};
        let world = World::new(&[]);
        let registry = Registry::roomy();
        for uid in 0..2 * MOST_LABELS as u32 {
            drop(registry.enter(Tenant { uid: Some(uid), ..tenant(&world, String::new()) }));
        }
        let readings = registry.readings();
        assert_eq!(readings.len(), MOST_LABELS + 1);
        assert!(readings.iter().any(|reading| reading.label == Label::Others));
    }
}
