//! The ways to a server that the benches compare: directly, and through proxies, in a network namespace of their own.

#![allow(dead_code, reason = "no bench uses all of it")]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");

/// Answers one byte with one byte.
pub const ECHO: &str = "127.0.0.1:9000";

/// Answers a ClientHello with one byte.
pub const HELLO: &str = "127.0.0.1:9002";

/// No program of a bench takes longer to start, and no tunnel longer to open.
pub const PATIENCE: Duration = Duration::from_secs(20);

const SQUID: &str = "\
http_port 127.0.0.1:3128
http_access allow all
cache deny all
cache_mem 8 MB
access_log none
cache_log /dev/null
pid_filename none
netdb_filename none
shutdown_lifetime 0 seconds
";

const TINYPROXY: &str = "\
Listen 127.0.0.1
Port 8888
MaxClients 1024
Timeout 600
LogLevel Critical
Allow 127.0.0.1
ConnectPort 9000
ConnectPort 9001
ConnectPort 9002
";

/// Runs this program anew, with the argument `inside`, where loopback is all there is.
pub fn enter_namespaces() {
    let this = env::current_exe().expect("this program's path");
    // Each end of a tunnel takes a descriptor.
    let descriptors = "ulimit -n $(ulimit -Hn)";
    // Closed connections keep their ports for a minute, and there are many.
    let ports = "echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range; echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";
    let error = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
            "sh",
            "-c",
        ])
        .arg(format!("ip link set lo up && {descriptors} && {{ {ports}; }} && exec \"$0\" inside"))
        .arg(this)
        .exec();
    panic!("cannot run `unshare`: {error}");
}

/// A way to the servers.
pub struct Way {
    pub name: &'static str,
    /// The proxy; `None` for a direct connection.
    pub proxy: Option<SocketAddr>,
    /// What has to run meanwhile.
    pub program: Option<Program>,
}

pub struct Program(pub Child);

impl Program {
    /// Seconds of processor that it has used (proc_pid_stat(5): fields 14 and 15, in hundredths). `None`: it cannot be told.
    pub fn processor(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        // A name may hold spaces.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / 100.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn listen(address: &str) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.bind(address.parse().expect("an address")).expect("a free port");
    socket.listen(4096).expect("a listener")
}

pub async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
        });
    }
}

/// What a client says first, which is the same bytes every time.
pub fn hello() -> Vec<u8> {
    let name = b"listed.example.com";
    let length = |bytes: usize| u16::try_from(bytes).expect("it is short").to_be_bytes();
    let name = [&[0], &length(name.len())[..], name].concat();
    let name = [&[0, 0], &length(name.len() + 2)[..], &length(name.len()), &name].concat();
    let body = [&[3, 3], &[7; 32][..], &[0], &[0, 2, 0x13, 1], &[1, 0], &length(name.len()), &name].concat();
    let message = [&[1, 0], &length(body.len())[..], &body].concat();
    [&[22, 3, 1], &length(message.len())[..], &message].concat()
}

/// Answers whatever comes as [`hello`] with one byte.
pub async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut hello = hello();
            if stream.read_exact(&mut hello).await.is_ok() {
                // The client may be gone.
                let _ = stream.write_all(&[0]).await;
            }
        });
    }
}

pub fn netbox() -> Way {
    proxy("netbox", NETBOX, "127.0.0.1:9000-9002,443")
}

/// The same without a look at what is carried.
pub fn unseen() -> Way {
    proxy("unseen", NETBOX, "tcp://127.0.0.1:9000-9002")
}

/// Another netbox to compare with, such as an earlier one, where `NETBOX_BASELINE` names it.
pub fn baseline() -> Option<Way> {
    let path = env::var("NETBOX_BASELINE").ok()?;
    Some(proxy("baseline", &path, "127.0.0.1:9000-9002,443"))
}

fn proxy(name: &'static str, path: &str, rule: &str) -> Way {
    let mut child = Command::new(path)
        .args(["proxy", "serve", "--listen", "127.0.0.1:0", "--no-config", "--allow", rule])
        .args(["--summary", "never"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("netbox starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("netbox speaks");
    // What it says later must not meet a closed pipe.
    thread::spawn(move || io::copy(&mut stderr, &mut io::stderr()));
    let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
    let program = Some(Program(child));
    Way { name, proxy: Some(address.unwrap_or_else(|| panic!("{line}"))), program }
}

/// squid does not run as root, and has no other user to become here but in a namespace of its own.
pub fn squid(folder: &Path) -> Option<Way> {
    let configuration = folder.join("squid.conf");
    fs::write(&configuration, SQUID).expect("own folder");
    start("squid", "127.0.0.1:3128", |command| {
        command.args(["--user", "--map-user=1000", "--map-group=1000", "squid", "-N", "-f"]).arg(&configuration);
    })
}

pub fn tinyproxy(folder: &Path) -> Option<Way> {
    let configuration = folder.join("tinyproxy.conf");
    fs::write(&configuration, TINYPROXY).expect("own folder");
    start("tinyproxy", "127.0.0.1:8888", |command| {
        command.args(["--user", "--map-root-user", "tinyproxy", "-d", "-c"]).arg(&configuration);
    })
}

fn start(name: &'static str, address: &str, arguments: impl FnOnce(&mut Command)) -> Option<Way> {
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).is_file()) {
        println!("{name} is not installed and left out");
        return None;
    }
    let mut command = Command::new("unshare");
    arguments(&mut command);
    let quiet =
        command.env("PATH", [path, "/usr/sbin".into()].join(":".as_ref())).stdout(Stdio::null()).stderr(Stdio::null());
    let program = Program(quiet.spawn().expect("the proxy starts"));
    Some(Way { name, proxy: Some(address.parse().expect("an address")), program: Some(program) })
}

/// Waits until the proxy, which has just been started, opens tunnels.
pub async fn ready(way: &Way) {
    while exchange(way).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection to the server on this way.
pub async fn open(way: &Way, server: &str) -> io::Result<TcpStream> {
    let Some(proxy) = way.proxy else { return TcpStream::connect(server).await };
    let mut stream = TcpStream::connect(proxy).await?;
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        // Byte by byte: what is behind it is the server's, which may speak first.
        answer.push(stream.read_u8().await?);
    }
    match answer.get(9..12) {
        Some(b"200") => Ok(stream),
        _ => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// One tunnel, opened, used for one byte in each direction, and closed.
pub async fn exchange(way: &Way) -> io::Result<()> {
    let mut stream = open(way, ECHO).await?;
    stream.write_all(&[0]).await?;
    stream.read_u8().await.map(drop)
}

/// The same with a ClientHello for the byte of the client's, which is read and judged where anybody looks.
pub async fn exchange_hello(way: &Way) -> io::Result<()> {
    let mut stream = open(way, HELLO).await?;
    stream.write_all(&hello()).await?;
    stream.read_u8().await.map(drop)
}
