//! Who uses the service during a soak, each of them in a thread, until a deadline. Every answer is looked at.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::arrivals::Mark;
use crate::control::{Cell, Control, request};
use crate::programs::curl;
use crate::run::eventually;
use crate::service::Service;
use crate::world::World;
use crate::zone::Host;

use super::words::{connect_to, echo, established, expect, is, is_page, patient, rule, socks5, status, tunnel};

/// How many threads of each kind there are.
const FOR_CELLS: usize = 6;
const PLAIN: usize = 4;
const WHOLE: usize = 2;

/// Tunnels that are open all the time, and how long they carry nothing. The servers' patience is a minute.
const IDLE: usize = 300;
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Of so many visits of a sandbox, one ends with a new attachment.
const VISITS: usize = 4;

/// How often the policy is read anew.
const RELOAD: Duration = Duration::from_secs(5);

/// Failures that are told one by one.
const TOLD: usize = 20;

/// What was done, and what went wrong.
#[derive(Debug, Default)]
pub struct Tally {
    pub allowed: AtomicU64,
    pub refused: AtomicU64,
    bytes: AtomicU64,
    attached: AtomicU64,
    whole: AtomicU64,
    reloads: AtomicU64,
    cut_off: AtomicU64,
    failed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Tally {
    /// Counts a request that is allowed, and has to be answered so.
    fn answered(&self, what: &str, result: io::Result<()>) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
        self.note(what, "is lost", result);
    }

    /// Counts a request that is not, and has to be refused.
    fn refused(&self, what: &str, result: io::Result<()>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.note(what, "is not refused", result);
    }

    fn note(&self, what: &str, problem: &str, result: io::Result<()>) {
        if let Err(error) = result
            && self.failed.fetch_add(1, Ordering::Relaxed) < TOLD as u64
        {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(format!("{what} {problem}: {error}"));
        }
    }

    /// What went wrong.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = self.failed.load(Ordering::Relaxed);
        if failed > failures.len() as u64 {
            failures.push(format!("{failed} in all"));
        }
        failures
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        writeln!(out, "{} requests allowed and answered, {} refused", of(&self.allowed), of(&self.refused))?;
        writeln!(out, "{:.1} GiB carried", of(&self.bytes) as f64 / f64::from(1 << 30))?;
        write!(out, "{} attachments, {} whole runs, ", of(&self.attached), of(&self.whole))?;
        write!(out, "{} reloads, {} connections cut off in the middle", of(&self.reloads), of(&self.cut_off))
    }
}

/// A sandbox, and what it is attached by.
struct Attached {
    cell: Cell,
    host: Host,
    lease: Mutex<Option<Control>>,
}

/// All of them.
pub struct Load<'w> {
    world: &'w World,
    sandboxes: Vec<Attached>,
    /// What plain clients may reach, and nobody else.
    listed: Host,
    /// What nobody may reach, at an address of its own.
    forbidden: Host,
    policy: PathBuf,
    mark: Mark,
    pub tally: Tally,
}

impl<'w> Load<'w> {
    /// Makes the sandboxes. The service is to be started with [`Load::policy`].
    pub fn new(world: &'w World, sandboxes: usize) -> Self {
        let (zone, mark) = (world.zone(), world.mark());
        let address = zone.host("soak").v4();
        let sandbox = |number| Attached {
            cell: Cell::new(),
            host: zone.host_at(&format!("soak-{number}"), &[address.into()]),
            lease: Mutex::default(),
        };
        let (listed, forbidden) = (zone.host("soak-listed"), zone.host("soak-forbidden"));
        let policy = world.fresh_path("files").with_extension("toml");
        let sandboxes = (0..sandboxes).map(sandbox).collect();
        let load = Self { world, sandboxes, listed, forbidden, policy, mark, tally: Tally::default() };
        load.write_policy(0);
        load
    }

    pub fn policy(&self) -> &Path {
        &self.policy
    }

    /// In one step, and another one each time; what it lists for the clients here is the same.
    fn write_policy(&self, number: u64) {
        let scratch = self.policy.with_extension("new");
        let rule = rule(&self.listed);
        fs::write(&scratch, format!("allow = [\"{rule}\", \"other-{number}.example.com\"]\n")).expect("own folder");
        fs::rename(&scratch, &self.policy).expect("own folder");
    }

    /// Uses the service until the deadline, while `look` looks at it.
    pub fn put_on(&self, service: &Service<'_>, deadline: Instant, look: impl FnOnce(&Tally)) {
        let listening = service.running().wait_for_stderr("listening on ");
        let proxy = listening.split(' ').find(|address| address.starts_with("127.")).expect("a TCP address");
        for sandbox in &self.sandboxes {
            self.attach(sandbox, service);
        }
        let idle: Vec<_> = (0..IDLE).map(|_| tunnel(proxy, &self.listed).expect("a tunnel")).collect();
        let next = AtomicUsize::new(0);
        let goes_on = || Instant::now() < deadline;
        let until = |act: &dyn Fn()| {
            while goes_on() {
                act();
            }
        };
        thread::scope(|scope| {
            for _ in 0..FOR_CELLS {
                scope.spawn(|| until(&|| self.visit(next.fetch_add(1, Ordering::Relaxed), service)));
            }
            for _ in 0..PLAIN {
                scope.spawn(|| until(&|| self.plain(proxy)));
            }
            for _ in 0..WHOLE {
                scope.spawn(|| until(&|| self.whole(service)));
            }
            scope.spawn(|| until(&|| self.bulk(proxy)));
            scope.spawn(|| until(&|| self.rude(proxy)));
            scope.spawn(|| until(&|| self.reload(service, deadline)));
            scope.spawn(|| until(&|| self.idle(&idle, deadline)));
            look(&self.tally);
        });
        for sandbox in &self.sandboxes {
            *lease(sandbox) = None;
        }
    }

    /// What reached the servers and must not.
    pub fn let_through(&self) -> Option<String> {
        let arrived = self.world.arrivals_named(self.mark, &self.forbidden.name, &self.forbidden.addresses);
        let http: Vec<_> = arrived.iter().filter(|arrival| arrival.service != "dns").collect();
        (!http.is_empty()).then(|| format!("{} requests for {} got through", http.len(), self.forbidden.name))
    }

    fn attach(&self, sandbox: &Attached, service: &Service<'_>) {
        let mut lease = lease(sandbox);
        *lease = None;
        let mut said = None;
        let rule = rule(&sandbox.host);
        // Until the one before has ended.
        let is_granted = eventually(|| {
            let (control, answer) = sandbox.cell.attach(self.world, service, &[&rule]);
            let is_granted = answer["type"] == "granted";
            said = Some(answer);
            *lease = is_granted.then_some(control);
            is_granted
        });
        self.tally.attached.fetch_add(1, Ordering::Relaxed);
        let result = if is_granted { Ok(()) } else { Err(io::Error::other(format!("{said:?}"))) };
        self.tally.note("an attachment", "is refused", result);
    }

    /// A sandbox's programs ask for its own host and for others', many times on one connection and on new ones.
    fn visit(&self, number: usize, service: &Service<'_>) {
        let sandbox = &self.sandboxes[number % self.sandboxes.len()];
        // One of those who visit it has it for itself, so that nobody is cut off by a new attachment.
        let Ok(held) = sandbox.lease.try_lock() else { return };
        let connect = || sandbox.cell.connect();
        if let Ok(mut stream) = connect() {
            for _ in 0..20 {
                self.tally.answered("a sandbox's request", is_page(&mut stream, &sandbox.host));
            }
        }
        for other in [&self.forbidden, &self.listed] {
            let asked = connect().and_then(|mut stream| request(&mut stream, &other.name, "/page"));
            self.tally.refused("a sandbox's request for another host", is(asked, 403));
        }
        let tunnelled = connect().and_then(|stream| established(stream, &sandbox.host));
        let echoed = tunnelled.and_then(|mut stream| echo(&mut stream, &[7; 64 * 1024]));
        self.tally.answered("a sandbox's tunnel", echoed);
        self.tally.bytes.fetch_add(128 * 1024, Ordering::Relaxed);
        drop(held);
        if number.is_multiple_of(VISITS) {
            self.attach(sandbox, service);
        }
    }

    /// A program that is told of the proxy: each protocol, allowed and refused.
    fn plain(&self, proxy: &str) {
        let connect = || patient(TcpStream::connect(proxy)?);
        for _ in 0..5 {
            let page = connect().and_then(|mut stream| is_page(&mut stream, &self.listed));
            self.tally.answered("a request", page);
            let echoed = tunnel(proxy, &self.listed).and_then(|mut stream| echo(&mut stream, b"to and fro"));
            self.tally.answered("a CONNECT tunnel", echoed);
            let echoed = socks5(proxy, &self.listed, 0).and_then(|mut stream| echo(&mut stream, b"to and fro"));
            self.tally.answered("a SOCKS5 tunnel", echoed);
        }
        let asked = connect().and_then(|mut stream| request(&mut stream, &self.forbidden.name, "/page"));
        self.tally.refused("a request", is(asked, 403));
        let opened = connect().and_then(|mut stream| status(&mut stream, &connect_to(&self.forbidden)));
        self.tally.refused("a CONNECT", is(opened.map(|status| (status, String::new())), 403));
        self.tally.refused("a SOCKS5 request", socks5(proxy, &self.forbidden, 2).map(drop));
    }

    /// Whole sandboxes, which come and go: names, captured connections, and everything that a run makes.
    fn whole(&self, service: &Service<'_>) {
        let host = &self.sandboxes[0].host;
        let (own, other) = (host.http("/[1-20]"), self.forbidden.http("/"));
        let client = ["--output", "/dev/null", "--write-out", "%{http_code}\n", &own, "--output", "/dev/null", &other];
        let outcome = service.netbox(&["--allow", &host.name]).exec(&curl(&client));
        let lines = outcome.stdout();
        for line in lines.lines().take(20) {
            self.tally.answered("a whole run's request", expect(line == "200", || outcome.to_string()));
        }
        self.tally
            .refused("a whole run's request", expect(lines.lines().nth(20) == Some("403"), || outcome.to_string()));
        self.tally.whole.fetch_add(1, Ordering::Relaxed);
    }

    /// Long streams, both relayed and tunnelled.
    fn bulk(&self, proxy: &str) {
        const LENGTH: u64 = 64 << 20;
        let stream = TcpStream::connect(proxy).and_then(patient).and_then(|mut stream| {
            let name = &self.listed.name;
            let get = format!("GET http://{name}/big?n={LENGTH} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
            is(status(&mut stream, &get).map(|status| (status, String::new())), 200)?;
            let length = io::copy(&mut stream, &mut io::sink())?;
            expect(length == LENGTH, || format!("{length} bytes"))
        });
        self.tally.answered("a long answer", stream);
        let tunnelled = tunnel(proxy, &self.listed).and_then(|stream| {
            let mut sending = stream.try_clone()?;
            let sender = thread::spawn(move || io::copy(&mut io::repeat(7).take(LENGTH), &mut sending));
            let length = io::copy(&mut stream.take(LENGTH), &mut io::sink())?;
            sender.join().map_err(|_| io::Error::other("the sender has panicked"))??;
            expect(length == LENGTH, || format!("{length} bytes"))
        });
        self.tally.answered("a long stream", tunnelled);
        self.tally.bytes.fetch_add(3 * LENGTH, Ordering::Relaxed);
    }

    /// Whoever says half of something, or nothing that makes sense, and goes away, in order or not.
    fn rude(&self, proxy: &str) {
        let connect = connect_to(&self.listed);
        let words = [&b"GET http://"[..], b"\x05\x01", b"\x16\x03\x01\x02\x00\x01", b"\0", connect.as_bytes()];
        for (number, word) in words.iter().enumerate() {
            if let Ok(mut stream) = TcpStream::connect(proxy) {
                let _ = stream.write_all(word);
                if number.is_multiple_of(2) {
                    let _ = nix::sys::socket::setsockopt(
                        &stream,
                        nix::sys::socket::sockopt::Linger,
                        &libc::linger { l_onoff: 1, l_linger: 0 },
                    );
                }
                self.tally.cut_off.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }

    /// Tunnels that are not used, and are still there.
    fn idle(&self, tunnels: &[TcpStream], deadline: Instant) {
        rest(IDLE_TIME, deadline);
        for mut stream in tunnels {
            self.tally.answered("what an idle tunnel is asked", echo(&mut stream, b"still there?"));
        }
    }

    fn reload(&self, service: &Service<'_>, deadline: Instant) {
        rest(RELOAD, deadline);
        self.write_policy(self.tally.reloads.fetch_add(1, Ordering::Relaxed));
        service.running().signal(Signal::SIGHUP);
    }
}

fn lease(sandbox: &Attached) -> std::sync::MutexGuard<'_, Option<Control>> {
    sandbox.lease.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So long, but not beyond the deadline.
fn rest(time: Duration, deadline: Instant) {
    thread::sleep(time.min(deadline.saturating_duration_since(Instant::now())));
}
