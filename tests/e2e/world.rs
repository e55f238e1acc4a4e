//! The world that every test lives in: the network, the servers, the files of a test host, and the ways to start a
//! program there.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};

use crate::arrivals::{Arrival, Mark};
use crate::child::Kernel;
use crate::host_services::HostServices;
use crate::identity::Identity;
use crate::network::{self, Network};
use crate::proxy::Proxy;
use crate::run::Run;
use crate::servers::{self, Authority, Gates, Shared};
use crate::zone::{self, Host, Zone};

/// The domain in which the test host looks for unqualified names.
pub const SEARCH_DOMAIN: &str = "corp.example.com";

/// Everything a test needs.
#[derive(Debug)]
pub struct World {
    /// As whom, and where.
    pub identity: Identity,
    /// What netbox runs on, unless a test has another one.
    pub kernel: Kernel,
    shared: Arc<Shared>,
    fences: AtomicU32,
    runs: AtomicU32,
    host_services: HostServices,
    network: Network,
}

impl World {
    /// Gives up root, makes the namespaces and starts the servers; the process must be single-threaded.
    ///
    /// # Panics
    ///
    /// When this machine lets any of it fail.
    pub fn new(netbox: &Path) -> Self {
        let identity = Identity::assume(netbox);
        let network = Network::new();
        let host_services = HostServices::new(identity.uid);
        let folder = identity.folder.path();
        let resolver = format!("nameserver {}\nsearch {SEARCH_DOMAIN}\n", zone::NAME_SERVER);
        network::replace_file("/etc/resolv.conf", &folder.join("resolv.conf"), &resolver);
        let hosts =
            format!("127.0.0.1 localhost\n::1 localhost\n{} {}\n", zone::IN_HOSTS_FILE.1, zone::IN_HOSTS_FILE.0);
        network::replace_file("/etc/hosts", &folder.join("hosts"), &hosts);
        let switch = "passwd: files\ngroup: files\nhosts: files dns\n";
        network::replace_file("/etc/nsswitch.conf", &folder.join("nsswitch.conf"), switch);
        for name in ["home", "files", "events"] {
            fs::create_dir(folder.join(name)).expect("own folder");
        }
        let shared = Arc::new(Shared {
            arrivals: Default::default(),
            zone: Zone::default(),
            gates: Gates::default(),
            authority: Authority::new(),
            files: folder.join("files"),
        });
        fs::write(folder.join("ca.pem"), &shared.authority.certificate).expect("own folder");
        servers::start(&network, &shared);
        host_services.start();
        let (fences, runs) = (AtomicU32::new(0), AtomicU32::new(0));
        let kernel = match std::env::var("NETBOX_E2E_WITHOUT") {
            Ok(without) if without == "nf_tables" => Kernel::HasNoPacketFilter,
            Ok(without) => panic!("`NETBOX_E2E_WITHOUT={without}`: only `nf_tables` can be missing"),
            Err(_) => Kernel::Willing,
        };
        Self { identity, kernel, shared, fences, runs, host_services, network }
    }

    /// Calls `make` with the calling thread on another machine, so to speak: where the servers are.
    pub fn in_inet<T>(&self, make: impl FnOnce() -> T) -> T {
        self.network.in_inet(make)
    }

    /// Where names are published.
    pub fn zone(&self) -> &Zone {
        &self.shared.zone
    }

    /// The name that the name server does not know, and the host's `/etc/hosts` does.
    pub fn host_in_hosts_file(&self) -> Host {
        let (name, address) = zone::IN_HOSTS_FILE;
        Host { name: name.to_owned(), addresses: vec![address.into()] }
    }

    /// The unix sockets of the host's services.
    pub fn host_services(&self) -> &HostServices {
        &self.host_services
    }

    /// Where a test lets a server go on.
    pub fn gates(&self) -> &Gates {
        &self.shared.gates
    }

    /// A path in the folder of this run of the tests.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.identity.folder.path().join(relative)
    }

    /// A new name in that folder, for a file of this kind.
    pub fn fresh_path(&self, kind: &str) -> PathBuf {
        self.path(&format!("{kind}/{}", self.runs.fetch_add(1, Ordering::Relaxed)))
    }

    /// A program on the test host without netbox: what a test shows to be refused must work like this.
    pub fn bare(&self) -> Run<'_> {
        Run::new(self, None)
    }

    /// `netbox run FLAGS -- …` on the test host.
    pub fn netbox(&self, flags: &[&str]) -> Run<'_> {
        Run::new(self, Some(flags)).kernel(self.kernel)
    }

    /// `netbox proxy serve FLAGS` on the test host, as soon as it listens.
    pub fn proxy(&self, flags: &[&str]) -> Proxy {
        Proxy::start(Run::proxy(self, flags))
    }

    /// Any other use of netbox: the words after `netbox` are the arguments that are then executed.
    pub fn netbox_words(&self) -> Run<'_> {
        Run::new(self, None).program(self.identity.netbox.clone().into_os_string()).kernel(self.kernel)
    }

    /// Where netbox is, for a program that starts it.
    pub fn netbox_path(&self) -> &Path {
        &self.identity.netbox
    }

    /// The environment of every program: nothing of the environment of the tests but `PATH`, and the certificate
    /// authority under the names that the clients look for.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let authority = self.path("ca.pem").into_os_string();
        let mut environment = vec![
            ("PATH", self.search_path()),
            ("HOME", self.path("home").into_os_string()),
            ("LANG", "C.UTF-8".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
        ];
        for name in ["CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] {
            environment.push((name, authority.clone()));
        }
        environment
    }

    /// The present moment of the log.
    pub fn mark(&self) -> Mark {
        self.shared.arrivals.mark()
    }

    /// What reached the servers for `host` since `mark`: by its name, or at an address that is its own.
    pub fn arrivals(&self, mark: Mark, host: &Host) -> Vec<Arrival> {
        self.fence(mark, &host.addresses);
        self.shared.arrivals.since(mark, |arrival| {
            arrival.name.as_ref() == Some(&host.name) || host.addresses.contains(&arrival.local.ip())
        })
    }

    /// What reached the servers with the name `name` in it since `mark`, at whatever address.
    pub fn arrivals_named(&self, mark: Mark, name: &str, addresses: &[IpAddr]) -> Vec<Arrival> {
        self.fence(mark, addresses);
        self.shared.arrivals.since(mark, |arrival| arrival.name.as_deref() == Some(name))
    }

    /// What reached the servers at `address` since `mark`.
    pub fn arrivals_at(&self, mark: Mark, address: IpAddr) -> Vec<Arrival> {
        self.fence(mark, &[address]);
        self.shared.arrivals.since(mark, |arrival| arrival.local.ip() == address)
    }

    /// Waits until there is such an arrival since `mark`.
    ///
    /// # Panics
    ///
    /// When there is none in five seconds.
    pub fn wait_for_arrival(&self, mark: Mark, wanted: impl Fn(&Arrival) -> bool) {
        assert!(self.shared.arrivals.wait_for(mark, wanted).is_some(), "it never arrived");
    }

    /// Asserts that something reached `host` since `mark`.
    #[track_caller]
    pub fn assert_reached(&self, mark: Mark, host: &Host) {
        let arrived = self.arrivals(mark, host);
        let by_connection = arrived.iter().any(|arrival| arrival.service != "dns");
        assert!(by_connection, "nothing reached {}: {arrived:#?}", host.name);
    }

    /// Asserts that neither a connection nor a query for `host` arrived since `mark`.
    #[track_caller]
    pub fn assert_untouched(&self, mark: Mark, host: &Host) {
        let arrived = self.arrivals(mark, host);
        assert!(arrived.is_empty(), "{} was refused, and yet there arrived {arrived:#?}", host.name);
    }

    /// Returns when everything that was sent before the call, by programs that have ended, is in the log.
    fn fence(&self, mark: Mark, addresses: &[IpAddr]) {
        for (port, service) in servers::PORTS {
            self.fence_connection(zone::FENCE, port, service);
        }
        for port in servers::HOST_PORTS {
            self.fence_connection(zone::HOST_FENCE, port, "host-http");
        }
        for server in [zone::NAME_SERVER, zone::PUBLIC_RESOLVER] {
            self.fence_datagram(server, 53);
        }
        self.fence_datagram(zone::UDP_ECHO, servers::UDP_PORT);
        self.shared.arrivals.settle(mark, addresses);
    }

    fn fence_connection(&self, address: Ipv4Addr, port: u16, service: &str) {
        let mark = self.mark();
        let fence = TcpStream::connect((address, port)).expect("the servers are up");
        let from = fence.local_addr().expect("a connected socket has an address");
        let seen = self.shared.arrivals.wait_for(mark, |arrival| arrival.service == service && arrival.peer == from);
        assert!(seen.is_some(), "the server on port {port} accepts nothing any more");
    }

    /// One question that a name server answers and an echo returns.
    fn fence_datagram(&self, address: Ipv4Addr, port: u16) {
        let number = self.fences.fetch_add(1, Ordering::Relaxed);
        let label = format!("fence-{number}");
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a UDP socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout above zero");
        socket.connect((address, port)).expect("a route");
        let header = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let length = u8::try_from(label.len()).expect("a short label");
        let question = [&header[..], &[length], label.as_bytes(), &[0, 0, 1, 0, 1]].concat();
        socket.send(&question).expect("the servers are up");
        socket.recv(&mut [0; 512]).expect("the server answers");
    }

    /// The system's folders first: a wrapper in somebody's home would be another program than the one that is meant.
    /// Folders that the test user may not enter are left out: a command that is nowhere would else be one that may
    /// not be executed.
    pub fn search_path(&self) -> OsString {
        let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let toolchain = self.identity.toolchain.clone();
        let folders = std::env::split_paths(system).chain(toolchain).chain(std::env::split_paths(&inherited));
        let enterable = folders.filter(|folder| access(folder, AccessFlags::X_OK).is_ok());
        std::env::join_paths(enterable).expect("folders from a path")
    }

    /// Removes the folder. The namespaces end with the process.
    pub fn tear_down(&self) {
        if let Err(error) = fs::remove_dir_all(self.identity.folder.path()) {
            eprintln!("`{}` is left behind: {error}", self.identity.folder.path().display());
        }
    }
}
