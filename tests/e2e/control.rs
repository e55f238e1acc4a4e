//! A client of the shared service that says what a test wants: the control protocol as it is written down, in bytes of the
//! test's own; and small sandboxes to attach by it, which are a network namespace and no more.

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};

use crate::service::{Service, household};
use crate::world::World;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A control connection.
#[derive(Debug)]
pub struct Control(UnixStream);

impl Control {
    /// Connects, and says nothing.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    pub fn connect(service: &Service<'_>) -> Self {
        let stream = service.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero");
        Self(stream)
    }

    /// Connects as another user, for root.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    pub fn connect_as(service: &Service<'_>, uid: u32) -> Self {
        act_as(uid);
        let control = Self::connect(service);
        act_as(0);
        control
    }

    /// The same, and says what it wants.
    pub fn hello(service: &Service<'_>, what: &str) -> Self {
        let mut control = Self::connect(service);
        control.say(&json!({ "v": 1, "what": what }));
        control
    }

    /// Sends a message.
    pub fn say(&mut self, message: &Value) {
        self.send(&frame(message.to_string().as_bytes()), &[]);
    }

    /// Sends bytes, and descriptors with the first of them. That the service has gone meanwhile is for the answer to say.
    pub fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[][..] } else { &rights[..] };
        let sent = sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None);
        if let Ok(sent) = sent {
            let _ = self.0.write_all(&bytes[sent..]);
        }
    }

    /// The next message. `None`: the end.
    ///
    /// # Panics
    ///
    /// When what comes is none, or nothing comes.
    pub fn told(&mut self) -> Option<Value> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the service says nothing"),
            Err(_) => return None,
            Ok(()) => {}
        }
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut text).expect("a whole frame");
        Some(serde_json::from_slice(&text).expect("JSON"))
    }

    /// The next message that is no event and no sums.
    ///
    /// # Panics
    ///
    /// When the end comes first.
    pub fn answer(&mut self) -> Value {
        loop {
            let told = self.told().expect("an answer");
            if !["event", "sums"].map(Value::from).contains(&told["type"]) {
                return told;
            }
        }
    }

    /// The reason of a refusal, after which nothing comes.
    ///
    /// # Panics
    ///
    /// When it is another answer.
    pub fn refusal(&mut self) -> String {
        let told = self.answer();
        assert_eq!(told["type"], "refused", "{told}");
        assert!(self.told().is_none(), "the end");
        told["reason"].as_str().expect("a reason").to_owned()
    }
}

/// A frame of the protocol.
pub fn frame(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a short text");
    [&length.to_be_bytes()[..], text].concat()
}

/// A request to attach, for descriptors of these kinds, with these allow rules.
pub fn attach(kinds: &[&str], allow: &[&str]) -> Value {
    let rules: Vec<_> = allow.iter().map(|rule| json!({ "rule": rule, "at": "--allow" })).collect();
    json!({
        "session": "00112233445566778899aabbccddeeff",
        "argv0": "test",
        "policy": { "mode": "allowlist", "ech": "allow", "allow": rules },
        "descriptors": kinds,
        "events": false,
        "first_id": 1,
        "names": { "listed": 0, "refused": 0 },
    })
}

/// A network namespace with a listener in it.
#[derive(Debug)]
pub struct Cell {
    network: OwnedFd,
    pub listener: TcpListener,
}

impl Cell {
    /// A new one. The calling thread stays in the test host's network.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn new() -> Self {
        let own = network();
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let network = network();
        raise_loopback();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        setns(own.as_fd(), CloneFlags::CLONE_NEWNET).expect("back to the host's network namespace");
        Self { network, listener }
    }

    /// A connection from inside to the listener.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let (own, address): (_, SocketAddr) = (network(), self.listener.local_addr()?);
        setns(self.network.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let stream = TcpStream::connect(address);
        setns(own.as_fd(), CloneFlags::CLONE_NEWNET).expect("back to the host's network namespace");
        let stream = stream?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Has the service carry it, with these allow rules, and gives its first answer.
    pub fn attach(&self, world: &World, service: &Service<'_>, allow: &[&str]) -> (Control, Value) {
        self.attach_by(world, Control::connect(service), allow)
    }

    /// The same, by a connection that has said nothing.
    pub fn attach_by(&self, world: &World, mut control: Control, allow: &[&str]) -> (Control, Value) {
        control.say(&json!({ "v": 1, "what": "attach" }));
        let request = frame(attach(&["explicit", "user-namespace"], allow).to_string().as_bytes());
        let namespace = shown_namespace(world);
        control.send(&request, &[self.listener.as_fd(), namespace.as_fd()]);
        let answer = control.answer();
        (control, answer)
    }

    /// The same, granted.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub fn attached(&self, world: &World, service: &Service<'_>, allow: &[&str]) -> Control {
        let (control, answer) = self.attach(world, service, allow);
        assert_eq!(answer["type"], "granted", "{answer}");
        control
    }
}

/// Gives the calling thread this effective user, alone.
fn act_as(uid: u32) {
    // SAFETY: no pointers. glibc's function would change every thread.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, uid, u32::MAX) };
    assert_eq!(result, 0, "root may be anybody: {}", std::io::Error::last_os_error());
}

/// The handle that shows where a client is: of the service's user namespace, since the tests are its accomplices.
pub fn shown_namespace(world: &World) -> OwnedFd {
    household(world)
        .unwrap_or_else(|| std::fs::File::open("/proc/self/ns/user").expect("the own user namespace").into())
}

/// Asks the proxy behind this connection for a page, and gives the status and the body.
///
/// # Errors
/// It is no answer.
pub fn request(stream: &mut TcpStream, host: &str, path: &str) -> std::io::Result<(u16, String)> {
    let request = format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let malformed = || std::io::Error::other(format!("no answer: {head}"));
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.ok_or_else(malformed)?];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn network() -> OwnedFd {
    // Of the thread: the process may have its own elsewhere.
    std::fs::File::open("/proc/thread-self/ns/net").expect("the thread's network namespace").into()
}

/// Brings `lo` up in the calling thread's network.
fn raise_loopback() {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a UDP socket");
    // SAFETY: an all-zero `ifreq` is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the kernel reads one `ifreq`, which lives throughout.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    assert_eq!(result, 0, "lo comes up: {}", std::io::Error::last_os_error());
}
