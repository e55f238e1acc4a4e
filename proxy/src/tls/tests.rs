//! A listener that speaks TLS, and a client of rustls that it is asked by.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use netbox_config::Mode;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;

use super::*;
use crate::capture::tests::world::*;
use crate::service::credentials::{Entrance, Roles, TenantDoor};

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// A certificate for `proxy.example`, and its key.
fn made() -> (CertificateDer<'static>, String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    (cert.der().clone(), cert.pem(), signing_key.serialize_pem())
}

/// A sandbox's world whose explicit listener speaks TLS, and what a client knows it by.
fn world(allow: &[&str]) -> (World, CertificateDer<'static>, Arc<Identity>) {
    let (certificate, chain, key) = made();
    let identity = Arc::new(Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap());
    let mut world = World::with(Mode::Allowlist, allow, &[]);
    open(&mut world, &identity);
    (world, certificate, identity)
}

/// Lets whoever speaks TLS in. Once the limits are set.
fn open(world: &mut World, identity: &Arc<Identity>) {
    let roles = Arc::new(Roles::new(Vec::new(), Arc::clone(&world.session)));
    let door = TenantDoor { roles, only: None };
    world.entrance = Some(Arc::new(Entrance { door, tls: Some(Arc::clone(identity)) }));
}

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

/// What a client starts with that trusts this certificate alone and wants these protocols.
fn client(certificate: &CertificateDer<'static>, alpn: &[&[u8]]) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    ClientConnection::new(Arc::new(config), ServerName::try_from("proxy.example").unwrap()).unwrap()
}

/// Does something with a connection to the listener on a thread, where it may wait.
async fn with<T: Send + 'static>(
    world: &mut World,
    state: ClientConnection,
    then: impl FnOnce(Client) -> T + Send + 'static,
) -> T {
    let socket = world.explicit().await.into_std().unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    soon_enough(spawn_blocking(move || then(StreamOwned::new(state, socket)))).await
}

async fn soon_enough<T>(what: tokio::task::JoinHandle<T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it happens soon").unwrap()
}

fn asked(mut stream: Client, request: &str) -> Client {
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = vec![0; ESTABLISHED.len()];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(String::from_utf8(head).unwrap(), ESTABLISHED);
    stream
}

const CONNECT: &str = "CONNECT github.com:9 HTTP/1.1\r\nHost: github.com:9\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_carried_behind_tls_arrives_whole_in_both_directions() {
    let (mut world, certificate, _) = world(&["github.com:9"]);
    let server = world.server("203.0.113.10:9").await;
    let far = tokio::spawn(async move {
        let mut stream = server.accept().await;
        let mut received = Vec::new();
        soon(stream.read_to_end(&mut received)).await.unwrap();
        // Only after the other direction has ended: a half-close is one.
        soon(stream.write_all(&received)).await.unwrap();
        received.len()
    });
    let sent: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
    let expected = sent.clone();
    let received = with(&mut world, client(&certificate, &[b"http/1.1"]), move |stream| {
        let mut stream = asked(stream, CONNECT);
        stream.write_all(&sent).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).map(|_| received)
    });
    // Ends with a close_notify, or it would be an error.
    assert!(received.await.unwrap() == expected);
    assert_eq!(soon_enough(far).await, 8_000_000);
    let events = world.events().await;
    assert_eq!(one_close(&events, "done")["sent"], 8_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_has_said_is_a_reset() {
    let (mut world, certificate, _) = world(&["github.com:9"]);
    let server = world.server("203.0.113.10:9").await;
    let far = tokio::spawn(async move {
        let mut stream = server.accept().await;
        expect(&mut stream, "\0some").await;
        expect_reset(&mut stream).await;
    });
    with(&mut world, client(&certificate, &[]), |stream| {
        let mut stream = asked(stream, CONNECT);
        stream.write_all(b"\0some").unwrap();
        // Somebody on the way can do this.
        stream.sock.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    })
    .await;
    soon_enough(far).await;
    one_close(&world.events().await, "reset");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_behind_tls_too() {
    let (mut world, certificate, _) = world(&["github.com:9"]);
    let told = with(&mut world, client(&certificate, &[b"h2", b"http/1.1"]), |mut stream| {
        stream.write_all(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n").unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), Some(ALPN));
        told
    })
    .await;
    assert!(told.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{told}");
    world.assert_untouched();
    one_decision(&world.events().await, "deny", "not-listed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_another_protocol_is_told_so() {
    let (mut world, certificate, _) = world(&["github.com:9"]);
    let error = with(&mut world, client(&certificate, &[b"h2"]), |mut stream| {
        loop {
            if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
                return error;
            }
        }
    })
    .await;
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    world.assert_untouched();
    one_decision(&world.events().await, "error", "malformed");
}

#[tokio::test]
async fn who_speaks_no_tls_is_ended() {
    for bytes in [CONNECT.as_bytes(), &[5, 1, 0], &[0x16, 3, 1, 0, 4, 1, 0, 0, 0]] {
        let (mut world, ..) = world(&["github.com:9"]);
        let mut plain = world.explicit().await;
        send(&mut plain, bytes).await;
        let mut told = Vec::new();
        let _ = soon(plain.read_to_end(&mut told)).await;
        // An alert at most.
        assert!(told.is_empty() || told[0] == 0x15, "{told:?}");
        drop(plain);
        world.assert_untouched();
        one_decision(&world.events().await, "error", "malformed");
    }
}

#[tokio::test]
async fn half_a_handshake_is_waited_for_no_longer_than_half_a_head() {
    let (mut world, _, identity) = world(&["github.com:9"]);
    world.entrance = None;
    let mut world = world.limits(|limits| limits.first_bytes = Duration::from_millis(50));
    open(&mut world, &identity);
    let mut silent = world.explicit().await;
    let mut slow = world.explicit().await;
    send(&mut slow, [0x16, 3, 1, 2, 0, 1]).await;
    for stream in [&mut silent, &mut slow] {
        let mut told = Vec::new();
        let _ = soon(stream.read_to_end(&mut told)).await;
        assert_eq!(told, [0; 0]);
    }
    assert_eq!(world.events().await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_later_sees_what_the_listener_is_known_by_then() {
    let (mut world, before, identity) = world(&["github.com:9"]);
    let (after, chain, key) = made();
    identity.replace(Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap());
    for (certificate, is_known) in [(&before, false), (&after, true)] {
        let shaken = with(&mut world, client(certificate, &[]), |mut stream| {
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            stream.conn.send_close_notify();
            stream.flush()
        });
        assert_eq!(shaken.await.is_ok(), is_known);
    }
    world.events().await;
}

#[test]
fn what_cannot_be_used_is_told() {
    let (_, chain, key) = made();
    let (_, _, other) = made();
    let said = |chain: &str, key: &str| match Identity::from_pem(chain.as_bytes(), key.as_bytes()) {
        Ok(_) => panic!("it is taken"),
        Err(error) => error.to_string(),
    };
    assert!(Identity::from_pem(chain.as_bytes(), key.as_bytes()).is_ok());
    assert_eq!(said("", &key), "there is no certificate in it (`-----BEGIN CERTIFICATE-----`)");
    assert_eq!(said(&key, &key), "there is no certificate in it (`-----BEGIN CERTIFICATE-----`)");
    assert!(said(&chain.replace("-----END", "-----"), &key).starts_with("it is not PEM: "));
    assert!(said("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &key).starts_with("it is not PEM: "));
    for no_key in ["", &chain, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"] {
        assert!(said(&chain, no_key).starts_with("there is no private key in it"), "{no_key}");
    }
    assert!(said(&chain, &other).starts_with("the certificate and the key cannot be used together: "));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(said(garbage, &key).starts_with("the certificate and the key cannot be used together: "));
}
