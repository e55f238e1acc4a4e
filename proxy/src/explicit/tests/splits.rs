//! How the bytes are cut on their way changes nothing.

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::*;
use crate::client_hello::tests::hello;

/// Whole conversations of a client: what it sends, of which it awaits nothing.
fn conversations() -> Vec<Vec<u8>> {
    let connects =
        ["github.com:443", "github.com:9", "evil.example:443", "github.com:22", "127.0.0.1:80", "2130706433:80"];
    let mut all: Vec<Vec<u8>> = vec![
        get("http://github.com/").into(),
        get("http://evil.example/").into(),
        (get("http://github.com/") + &get("http://evil.example/")).into(),
        format!("\r\n\r\n{}", get("http://github.com/")).into(),
        "GET http://github.com/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n".into(),
        "GET https://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n".into(),
        "GET http://github.com/ HTTP/1.1\nHost: github.com\n\n".into(),
        [connect("github.com:443").as_bytes(), &hello("github.com")].concat(),
        [connect("github.com:443").as_bytes(), &hello("evil.example")].concat(),
        [GREETING, &named(b"github.com", 443), &hello("github.com")].concat(),
        [GREETING, &named(b"github.com", 443), &hello("evil.example")].concat(),
        [GREETING, &named(b"github.com", 9), b"\0data"].concat(),
        [GREETING, &named(b"evil.example", 443)].concat(),
        [GREETING, &named(b"github.com\0", 443)].concat(),
        [GREETING, b"\x05\x03\0\x01\0\0\0\0\0\0"].concat(),
        [GREETING, b"\x05\x01\0\x00"].concat(),
        b"\x05\x02\x01\x02".to_vec(),
        b"\x04\x01\0\x50".to_vec(),
    ];
    all.extend(connects.map(|target| connect(target).into()));
    all
}

/// What the client gets, and why.
async fn held(bytes: &[u8], cuts: &[usize]) -> (String, Vec<String>) {
    let mut world = World::new(&["github.com:80,443,9"]);
    let mut servers = tokio::task::JoinSet::new();
    for port in [80, 443, 9] {
        let server = world.server(&format!("203.0.113.10:{port}")).await;
        servers.spawn(async move {
            loop {
                let mut upstream = server.accept_any().await;
                let mut request = [0; 4096];
                if upstream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let _ = upstream.write_all(OK.as_bytes()).await;
                    let _ = upstream.read_to_end(&mut Vec::new()).await;
                }
            }
        });
    }
    let mut client = world.explicit().await;
    client.set_nodelay(true).unwrap();
    let (mut sent, mut cuts) = (0, cuts.to_vec());
    cuts.sort_unstable();
    for cut in cuts.into_iter().chain([bytes.len()]) {
        // A refusal may come before all of it has been taken.
        if client.write_all(&bytes[sent..cut]).await.is_err() {
            break;
        }
        sent = cut;
        // Gives the door its turns; what it makes of them is what is tested.
        for _ in 0..4 {
            yield_now().await;
        }
    }
    let _ = client.shutdown().await;
    let received = all(&mut client).await;
    drop(client);
    let events = world.events().await;
    (String::from_utf8_lossy(&received).into_owned(), reasons(&events).into_iter().map(str::to_owned).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn splitting_never_changes_the_verdict(
        which in any::<prop::sample::Index>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let bytes = which.get(&conversations()).clone();
        let cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (whole, split) = (held(&bytes, &[]).await, held(&bytes, &cuts).await);
            prop_assert_eq!(whole, split, "{:?} cut at {:?}", String::from_utf8_lossy(&bytes), cuts);
            Ok(())
        })?;
    }
}

/// Byte by byte, each of them.
#[tokio::test]
async fn one_byte_at_a_time_is_the_same() {
    for bytes in conversations().into_iter().filter(|bytes| bytes.len() < 200) {
        let cuts: Vec<_> = (1..bytes.len()).collect();
        assert_eq!(held(&bytes, &[]).await, held(&bytes, &cuts).await, "{:?}", String::from_utf8_lossy(&bytes));
    }
}
