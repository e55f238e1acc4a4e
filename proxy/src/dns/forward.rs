//! Records other than addresses, of listed names, as the host's name servers have them.
//!
//! [`HostRecords`] asks the servers of the host's `resolv.conf`; the file is read for each lookup, since a laptop
//! changes networks and these lookups are few. What comes back is taken apart, and of it only records of the type that
//! was asked for go on, with the names in them spelled out: no address in an additional section, no other record, can
//! travel along.

use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, Record as Answered, RecordType};
use hickory_resolver::proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};
use hickory_resolver::system_conf::read_system_conf;
use netbox_config::HostName;
use tokio::time::timeout;

use crate::resolve::{LookupError, Pending};

/// How long a lookup may take, all servers and repetitions together.
pub const RECORDS_DEADLINE: Duration = Duration::from_secs(10);

/// How many records of an answer are kept.
pub const MAX_RECORDS: usize = 64;

/// How many bytes of data the kept records have together: far below what a message by TCP can hold.
pub const MAX_RECORD_BYTES: usize = 32 << 10;

/// The longest time that a record may be kept inside, in seconds.
pub const MAX_TTL: u32 = 300;

/// The types that are asked for on the host. A closed list: each is here because programs need it, none carries an
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The name that this one is another name for.
    Cname,
    /// The zone's name servers.
    Ns,
    /// The zone's start: how a program finds where it begins.
    Soa,
    /// Where mail goes.
    Mx,
    /// Text: verification, and options of a database's address.
    Txt,
    /// Where a service is.
    Srv,
    /// Rewriting, for telephony.
    Naptr,
    /// Who may issue certificates.
    Caa,
}

impl RecordKind {
    const ALL: [Self; 8] = [Self::Cname, Self::Ns, Self::Soa, Self::Mx, Self::Txt, Self::Srv, Self::Naptr, Self::Caa];

    /// The kind with this type code.
    #[must_use]
    pub fn of(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The type's code (IANA, "Resource Record (RR) TYPEs").
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Ns => 2,
            Self::Cname => 5,
            Self::Soa => 6,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Srv => 33,
            Self::Naptr => 35,
            Self::Caa => 257,
        }
    }

    /// Whether a record of the name's alias counts as the name's own, as an address does. Those about the place in the
    /// tree do not: a zone does not begin at another name for a host in it.
    fn follows_aliases(self) -> bool {
        !matches!(self, Self::Cname | Self::Ns | Self::Soa)
    }
}

/// One record of the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How long it may be kept, in seconds.
    pub ttl: u32,
    /// Its data as it stands in a message, without compression.
    pub data: Vec<u8>,
}

/// Looks up records. Tests put a scripted one in its place.
pub trait RecordSource: Send + Sync {
    /// The records of this kind that `name` has, at least one.
    fn records<'a>(&'a self, name: &'a HostName, kind: RecordKind) -> Pending<'a, Result<Vec<Record>, LookupError>>;
}

/// Which servers to ask and how; read anew for each lookup.
pub type Configuration = dyn Fn() -> Result<(ResolverConfig, ResolverOpts), NetError> + Send + Sync;

/// The records that the host's name servers have.
pub struct HostRecords {
    configuration: Box<Configuration>,
    deadline: Duration,
}

impl HostRecords {
    /// Asks the servers of `/etc/resolv.conf`. Nothing is read before the first lookup.
    #[must_use]
    pub fn new() -> Self {
        Self { configuration: Box::new(read_system_conf), deadline: RECORDS_DEADLINE }
    }

    #[cfg(test)]
    pub(super) fn with(configuration: Box<Configuration>) -> Self {
        Self { configuration, deadline: RECORDS_DEADLINE }
    }

    async fn look_up(&self, name: &HostName, kind: RecordKind) -> Result<Vec<Record>, LookupError> {
        let owner = qualified(name)?;
        let resolver = self.resolver().map_err(failed)?;
        let answer = resolver.lookup(owner.clone(), RecordType::from(kind.code())).await.map_err(failed)?;
        let records = kept(answer.answers(), &owner, kind);
        if records.is_empty() { Err(LookupError::NoAddress) } else { Ok(records) }
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let (configuration, mut options) = (self.configuration)()?;
        // The resolver lives for one lookup, and its `/etc/hosts` knows nothing but addresses.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        TokioResolver::builder_with_config(configuration, TokioRuntimeProvider::default()).with_options(options).build()
    }
}

impl Default for HostRecords {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordSource for HostRecords {
    fn records<'a>(&'a self, name: &'a HostName, kind: RecordKind) -> Pending<'a, Result<Vec<Record>, LookupError>> {
        Box::pin(async move {
            let outcome = timeout(self.deadline, self.look_up(name, kind)).await;
            outcome.unwrap_or_else(|_| Err(LookupError::Failed("timed out".to_owned())))
        })
    }
}

/// The name with the root at its end, so that no search domain is tried.
fn qualified(name: &HostName) -> Result<Name, LookupError> {
    let labels = name.as_str().split('.').map(str::as_bytes);
    let name = Name::from_labels(labels).map_err(|error| LookupError::Failed(error.to_string()))?;
    Ok(name)
}

fn failed(error: NetError) -> LookupError {
    if error.is_nx_domain() {
        LookupError::NotFound
    } else if error.is_no_records_found() {
        LookupError::NoAddress
    } else {
        LookupError::Failed(error.to_string())
    }
}

/// The records of an answer that go on.
fn kept(answers: &[Answered], owner: &Name, kind: RecordKind) -> Vec<Record> {
    let mut bytes = 0;
    let asked = RecordType::from(kind.code());
    answers
        .iter()
        .filter(|answer| answer.record_type() == asked && (kind.follows_aliases() || answer.name == *owner))
        .filter_map(|answer| Some(Record { ttl: answer.ttl.min(MAX_TTL), data: encoded(&answer.data)? }))
        .take(MAX_RECORDS)
        .take_while(|record| {
            bytes += record.data.len();
            bytes <= MAX_RECORD_BYTES
        })
        .collect()
}

/// A record's data with the names in it spelled out: where it will stand, there is nothing to point back to.
fn encoded(data: &impl BinEncodable) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    data.emit(&mut encoder).ok()?;
    Some(bytes)
}
