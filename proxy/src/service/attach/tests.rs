//! A client that says what the tests want, over a socket pair. Sockets of this process count as made in a sandbox.

use std::net::{TcpListener, TcpStream as StdStream};
use std::os::fd::AsFd;

use netbox_config::{AskedPolicy, Bound, HostName, Mode, Policy, Rule, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::*;
use crate::dns::{HostRecords, Names};
use crate::facts::Facts;
use crate::resolve::{LookupError, Pending, Resolver};
use crate::service::channel::split;
use crate::service::handed::Networks;
use crate::service::host::Lane;
use crate::service::registry::Registry;
use crate::service::wire::Handed;
use crate::turns::Asked;

/// Knows every name at one address that nobody has.
struct OneAddress;

impl Resolver for OneAddress {
    fn addresses<'a>(&'a self, _: &'a HostName, _: Asked) -> Pending<'a, Result<Vec<std::net::IpAddr>, LookupError>> {
        Box::pin(async { Ok(vec!["203.0.113.1".parse().unwrap()]) })
    }
}

struct Here {
    registry: Registry,
    bound: Bound,
    own_network: u64,
    end: watch::Sender<bool>,
}

impl Here {
    fn new() -> Self {
        Self { registry: Registry::roomy(), bound: Bound::default(), own_network: 1, end: watch::Sender::new(false) }
    }
}

impl Host for Here {
    fn generation(&self) -> u64 {
        0
    }

    fn joined(&self, _: &Tenant, generation: u64) {
        assert_eq!(generation, 0);
    }

    fn networks(&self) -> Networks {
        Networks { own: self.own_network, of: |_| Ok(2) }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn is_own_user_namespace(&self, handle: &OwnedFd) -> bool {
        // A listener stands in for the handle.
        rustix::net::sockopt::socket_acceptconn(handle).is_ok()
    }

    fn grant(&self, peer: &Peer, asked: &AskedPolicy) -> Result<Granted, Refused> {
        if peer.uid != 1000 {
            return Err(Refused::new(RefusedFor::User, "nothing for you"));
        }
        asked
            .grant(std::slice::from_ref(&self.bound))
            .map_err(|error| Refused::new(RefusedFor::Malformed, error.to_string()))
    }

    fn session(&self, _: &Peer, policy: Arc<Policy>, events: Events, listeners: &Listeners) -> Session {
        let names = Names::new(policy, Arc::new(OneAddress), Arc::new(HostRecords::new()), Vec::new());
        Session::new(Arc::new(names), events, Facts::new(listeners.addresses()))
    }

    fn outlets(&self, _: &Peer, _: SessionId) -> Vec<Arc<dyn Outlet>> {
        Vec::new()
    }

    fn ends(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    fn lane(&self, _: &Peer) -> Result<Lane, Refused> {
        Ok(Lane { runtime: Handle::current(), is_users_own: false })
    }
}

fn peer() -> Peer {
    Peer { uid: 1000, groups: vec![1000], pid: 1, user_namespace: UserNamespace::Own }
}

fn request(rules: &[&str]) -> Attach {
    let rules = rules.iter().map(|rule| Rule::parse(rule, Source::Flag("--allow")).unwrap()).collect();
    let policy = AskedPolicy::of(&Policy::new(Mode::Allowlist, rules, Vec::new()).unwrap());
    Attach {
        session: "00112233445566778899aabbccddeeff".into(),
        argv0: "curl".into(),
        policy,
        descriptors: vec![Handed::Explicit, Handed::UserNamespace],
        events: true,
        first_id: 7,
        names: NamesUsed::default(),
    }
}

/// A client's end.
struct Client {
    receiver: Receiver,
    sender: Sender,
}

impl Client {
    async fn told(&mut self) -> Option<Told> {
        let frame = self.receiver.receive(LONGEST_ATTACH).await.unwrap()?;
        Some(frame.read().unwrap())
    }

    /// What comes next of this kind. Sums come when they like.
    async fn told_next(&mut self) -> Told {
        loop {
            match self.told().await.expect("something is said") {
                Told::Sums(_) => {}
                told => return told,
            }
        }
    }

    async fn refusal(&mut self) -> RefusedFor {
        match self.told_next().await {
            Told::Refused(refused) => refused.reason,
            told => panic!("{told:?}"),
        }
    }

    async fn say(&self, said: Said) {
        self.sender.send(&encode(&said)).await.unwrap();
    }
}

fn connect(host: &Arc<Here>, peer: Peer) -> (Client, JoinHandle<Result<(), Refused>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let host = Arc::clone(host);
    let served = tokio::spawn(async move {
        let (receiver, sender) = split(theirs);
        attach(&*host, &peer, receiver, sender, || ()).await
    });
    let (receiver, sender) = split(ours);
    (Client { receiver, sender }, served)
}

/// A client that has attached one explicit listener.
async fn attached(host: &Arc<Here>, request: &Attach) -> (Client, TcpListener, JoinHandle<Result<(), Refused>>) {
    let (mut client, served) = connect(host, peer());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    client.sender.send_with(&encode(request), &[listener.as_fd(), listener.as_fd()]).await.unwrap();
    let told = client.told_next().await;
    assert!(matches!(told, Told::Granted { .. }), "{told:?}");
    (client, listener, served)
}

/// Asks the proxy for a connection, and reads the line that it answers with.
async fn ask(listener: &TcpListener, host: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    stream.write_all(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    (stream, String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn an_attached_sandbox_is_judged_by_its_own_policy_and_told_of_it() {
    let host = Arc::new(Here::new());
    let (mut client, listener, served) = attached(&host, &request(&["example.com"])).await;
    let [(_, tenant)] = &host.registry.tenants()[..] else { panic!("one tenant") };
    assert_eq!((tenant.kind, tenant.uid, tenant.name.as_str()), (TenantKind::Sandbox, Some(1000), "curl"));
    let (_, answer) = ask(&listener, "example.org").await;
    assert_eq!(answer, "HTTP/1.1 403");
    let Told::Event { line } = client.told_next().await else { panic!("no event") };
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["id"], &event["reason"]), (&7.into(), &"not-listed".into()));
    assert_eq!(event["session"], "00112233445566778899aabbccddeeff");
    client.say(Said::End {}).await;
    let Told::Summary { summary, events_dropped: 0 } = client.told_next().await else { panic!("no summary") };
    assert_eq!((summary.denied, summary.refused[0].host.as_str()), (1, "example.org"));
    assert!(client.told().await.is_none(), "the end");
    assert_eq!(served.await.unwrap(), Ok(()));
    assert!(host.registry.tenants().is_empty());
}

#[tokio::test]
async fn connects_are_judged_in_the_order_of_the_questions() {
    let host = Arc::new(Here::new());
    let mut request = request(&["203.0.113.5:22"]);
    request.events = false;
    let (mut client, _listener, _served) = attached(&host, &request).await;
    let questions =
        [("203.0.113.5:22", true), ("203.0.113.6:22", false), ("203.0.113.6:443", true), ("127.0.0.1:1", true)];
    for (n, (destination, _)) in questions.iter().enumerate() {
        client.say(Said::Judge { n: n as u64, destination: destination.parse().unwrap(), process: None }).await;
    }
    for (n, (_, allow)) in questions.into_iter().enumerate() {
        assert_eq!(client.told_next().await, Told::Verdict { n: n as u64, allow });
    }
}

#[tokio::test]
async fn sums_come_without_being_asked_for_and_lines_only_where_they_are_wanted() {
    let host = Arc::new(Here::new());
    let mut request = request(&[]);
    request.events = false;
    let (mut client, listener, _served) = attached(&host, &request).await;
    ask(&listener, "example.org").await;
    let Some(Told::Sums(sums)) = client.told().await else { panic!("no sums") };
    assert_eq!(sums.denied, 1);
}

#[tokio::test]
async fn a_client_is_told_when_no_more_connections_are_taken_and_what_is_open_goes_on() {
    let host = Arc::new(Here::new());
    let (mut client, listener, _served) = attached(&host, &request(&["example.com"])).await;
    let mut open = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    open.write_all(b"CONNECT example.org:443 HTTP/1.1\r\n").await.unwrap();
    let [(_, tenant)] = &host.registry.tenants()[..] else { panic!("one tenant") };
    tenant.session.drain();
    assert_eq!(client.told_next().await, Told::Draining {});
    // What connects now is the client's, who has the listener too.
    let new = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (taken, _) = listener.accept().unwrap();
    assert_eq!(taken.peer_addr().unwrap(), new.local_addr().unwrap());
    open.write_all(b"Host: example.org:443\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 12];
    open.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 403");
    client.say(Said::End {}).await;
    loop {
        match client.told_next().await {
            Told::Event { .. } => {}
            told => break assert!(matches!(told, Told::Summary { .. }), "{told:?}"),
        }
    }
}

#[tokio::test]
async fn the_end_of_the_connection_ends_the_sandboxs_connections() {
    let host = Arc::new(Here::new());
    let (client, listener, served) = attached(&host, &request(&["example.com"])).await;
    let mut open = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    // It is carried: half a request waits for its rest.
    open.write_all(b"CONNECT ").await.unwrap();
    drop(client);
    assert_eq!(served.await.unwrap(), Ok(()));
    assert!(matches!(open.read(&mut [0; 1]).await, Ok(0) | Err(_)), "it is open");
    assert!(host.registry.tenants().is_empty() && host.registry.claim(2, 1000, 1, 1).is_ok());
}

#[tokio::test]
async fn what_the_owner_leaves_out_is_not_granted() {
    let mut here = Here::new();
    here.bound.deny.push(Rule::parse_deny("a.example.com", Source::Flag("--deny")).unwrap());
    let (mut client, listener, _served) = attached(&Arc::new(here), &request(&["*.example.com"])).await;
    let (_, answer) = ask(&listener, "a.example.com").await;
    assert_eq!(answer, "HTTP/1.1 403");
    let Told::Event { line } = client.told_next().await else { panic!("no event") };
    assert!(line.contains(r#""reason":"denied""#) && line.contains("--deny"), "{line}");
}

#[tokio::test]
async fn who_may_have_nothing_is_refused_and_told_why() {
    let host = Arc::new(Here::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other_user = Peer { uid: 1001, ..peer() };
    let inside = Peer { user_namespace: UserNamespace::Another, ..peer() };
    let untold = Peer { user_namespace: UserNamespace::Untold, ..peer() };
    let alone = vec![Handed::Explicit];
    let with_handle = vec![Handed::Explicit, Handed::UserNamespace];
    let cases = [
        (other_user, &with_handle, RefusedFor::User),
        (inside, &with_handle, RefusedFor::Namespace),
        (untold.clone(), &alone, RefusedFor::Namespace),
        // A connect that was made for it says nothing.
        (peer(), &alone, RefusedFor::Namespace),
    ];
    let handed = [listener.as_fd(), listener.as_fd()];
    for (peer, kinds, reason) in cases {
        let (mut client, served) = connect(&host, peer);
        let request = Attach { descriptors: kinds.clone(), ..request(&["example.com"]) };
        client.sender.send_with(&encode(&request), &handed[..kinds.len()]).await.unwrap();
        assert_eq!(client.refusal().await, reason);
        assert_eq!(served.await.unwrap().unwrap_err().reason, reason);
    }
    // One who shows a handle is let in.
    let (mut client, _served) = connect(&host, untold);
    client.sender.send_with(&encode(&request(&[])), &handed).await.unwrap();
    assert!(matches!(client.told_next().await, Told::Granted { .. }));
    assert!(host.registry.claim(2, 1000, 1, 1).is_err());
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_and_leave_nothing() {
    let host = Arc::new(Here::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let broken_rule = |attach: &mut Attach| {
        let text = serde_json::to_string(&attach.policy).unwrap().replace("example.com", "*.com");
        attach.policy = serde_json::from_str(&text).unwrap();
    };
    type Edit<'a> = &'a dyn Fn(&mut Attach);
    let edits: [(&str, Edit<'_>, RefusedFor); 4] = [
        ("no number", &|attach: &mut Attach| attach.session = "1234".into(), RefusedFor::Malformed),
        ("a rule that is none", &broken_rule, RefusedFor::Malformed),
        (
            "announced and not sent",
            &|attach: &mut Attach| attach.descriptors.push(Handed::Capture),
            RefusedFor::Descriptors,
        ),
        (
            "not what it is said to be",
            &|attach: &mut Attach| attach.descriptors = vec![Handed::DnsUdp, Handed::UserNamespace],
            RefusedFor::Descriptors,
        ),
    ];
    for (what, edit, reason) in edits {
        let (mut client, _served) = connect(&host, peer());
        let mut request = request(&["example.com"]);
        edit(&mut request);
        client.sender.send_with(&encode(&request), &[listener.as_fd(), listener.as_fd()]).await.unwrap();
        assert_eq!(client.refusal().await, reason, "{what}");
        assert!(client.told().await.is_none(), "{what}");
        assert!(host.registry.claim(2, 1000, 1, 1).is_ok(), "{what}");
    }
    let (mut client, _served) = connect(&host, peer());
    client.sender.send(&[0xff; 100]).await.unwrap();
    assert_eq!(client.refusal().await, RefusedFor::Malformed);
}

#[tokio::test]
async fn listeners_are_attached_once() {
    let host = Arc::new(Here::new());
    let (client, _listener, served) = attached(&host, &request(&[])).await;
    let (mut second, _) = connect(&host, peer());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    second.sender.send_with(&encode(&request(&[])), &[listener.as_fd(), listener.as_fd()]).await.unwrap();
    assert_eq!(second.refusal().await, RefusedFor::Attached);
    drop(client);
    served.await.unwrap().unwrap();
    attached(&host, &request(&[])).await;
}

#[tokio::test]
async fn nonsense_from_an_attached_client_ends_its_sandbox() {
    let host = Arc::new(Here::new());
    let (mut client, listener, served) = attached(&host, &request(&[])).await;
    client.sender.send(&encode(&serde_json::json!({ "type": "judge" }))).await.unwrap();
    assert_eq!(client.refusal().await, RefusedFor::Malformed);
    assert_eq!(served.await.unwrap().unwrap_err().reason, RefusedFor::Malformed);
    drop(listener);
    let (client, listener, served) = attached(&host, &request(&[])).await;
    client.sender.send_with(&encode(&Said::End {}), &[listener.as_fd()]).await.unwrap();
    assert_eq!(served.await.unwrap().unwrap_err().reason, RefusedFor::Descriptors);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_half_sent_is_given_up() {
    let host = Arc::new(Here::new());
    let (mut client, served) = connect(&host, peer());
    let frame = encode(&request(&["example.com"]));
    client.sender.send(&frame[..frame.len() - 1]).await.unwrap();
    assert_eq!(client.refusal().await, RefusedFor::Timeout);
    assert_eq!(served.await.unwrap().unwrap_err().reason, RefusedFor::Timeout);
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_given_up() {
    let host = Arc::new(Here::new());
    let (client, _listener, served) = attached(&host, &request(&[])).await;
    let question = encode(&Said::Judge { n: 1, destination: "203.0.113.6:443".parse().unwrap(), process: None });
    let questions = question.repeat(100);
    while client.sender.send(&questions).await.is_ok() {}
    // It sees the end as it writes; the service has gone on.
    let ended = served.await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
}

/// The listener's maker makes it a blocking one, and takes connections away: see [`Served::end`].
#[tokio::test]
async fn a_listener_that_holds_its_thread_up_is_shut_down_with_the_lease() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let copies = vec![listener.as_fd().try_clone_to_owned().unwrap()];
    let task = tokio::task::spawn_blocking(move || {
        // As accept(2) on a thread of a user's own: nobody comes.
        let accepted = listener.accept();
        assert!(accepted.is_err(), "{accepted:?}");
        Ok(())
    });
    Served { task, copies }.end().await;
    let _ = StdStream::connect("127.0.0.1:1");
}

#[tokio::test]
async fn names_of_before_are_not_given_again() {
    let host = Arc::new(Here::new());
    let request = Attach { names: NamesUsed { listed: 5, refused: 9 }, ..request(&["example.com"]) };
    let (_client, _listener, _served) = attached(&host, &request).await;
    let tenants = host.registry.tenants();
    assert_eq!(tenants[0].1.session.names.synthetic.used(), (5, 9));
    let name = HostName::parse_wire(b"example.com").unwrap();
    let (v4, _) = tenants[0].1.session.names.synthetic.assign(&name, true).unwrap();
    assert_eq!(tenants[0].1.session.names.synthetic.name_of(v4.into()), Some(name));
    assert_ne!(v4, std::net::Ipv4Addr::new(198, 18, 1, 1));
}

#[tokio::test]
async fn the_end_of_the_service_is_told_with_the_sums() {
    let host = Arc::new(Here::new());
    let mut request = request(&[]);
    request.events = false;
    let (mut client, listener, served) = attached(&host, &request).await;
    ask(&listener, "example.org").await;
    host.end.send_replace(true);
    let Told::Summary { summary, .. } = client.told_next().await else { panic!("no summary") };
    assert_eq!(summary.refused[0].host, "example.org");
    assert!(client.told().await.is_none(), "the end");
    assert_eq!(served.await.unwrap(), Ok(()));
    assert!(TcpStream::connect(listener.local_addr().unwrap()).await.is_ok(), "the client has the listener still");
}
