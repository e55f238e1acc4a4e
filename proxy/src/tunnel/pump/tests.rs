use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::super::TunnelEnd;
use super::super::tests::{pair, pattern, tunnelled};
use super::*;
use crate::capture::tests::world::{expect, send, soon};

/// A pump whose progress can be seen.
async fn pumped(limit: u64, bytes: Vec<u8>) -> (Result<Pumped, PumpError>, Vec<u8>, u64) {
    let (mut source, from) = pair().await;
    let (to, mut sink) = pair().await;
    let feeding = tokio::spawn(async move {
        send(&mut source, bytes).await;
        source
    });
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        sink.read_to_end(&mut received).await.unwrap();
        received
    });
    let moved = Meter::default();
    let (from, to) = (Stream::from(from), Stream::from(to));
    let pumping = async {
        let ended = pump(&from, &to, limit, &moved).await;
        drop(to);
        ended
    };
    let closing = async {
        let source = feeding.await.unwrap();
        drop(source);
        reading.await.unwrap()
    };
    let (ended, received) = soon(async { tokio::join!(pumping, closing) }).await;
    (ended, received, moved.bytes())
}

#[tokio::test]
async fn a_stream_arrives_whole_and_in_order() {
    // Long enough to be spliced.
    let bytes = pattern(32 << 20);
    let (ended, received, moved) = pumped(u64::MAX, bytes.clone()).await;
    assert_eq!(ended, Ok(Pumped::End));
    assert!(received == bytes);
    assert_eq!(moved, bytes.len() as u64);
}

#[tokio::test]
async fn what_is_not_taken_at_once_goes_before_what_comes_next() {
    use nix::sys::socket::{setsockopt, sockopt};
    let (mut source, from) = pair().await;
    let (to, mut sink) = pair().await;
    setsockopt(&to, sockopt::SndBuf, &4096).unwrap();
    setsockopt(&sink, sockopt::RcvBuf, &4096).unwrap();
    // Too short to be spliced.
    let bytes = pattern(usize::try_from(BUSY).unwrap() / 2);
    let sent = bytes.clone();
    let feeding = tokio::spawn(async move { send(&mut source, sent).await });
    let (from, to, moved) = (Stream::from(from), Stream::from(to), Meter::default());
    let pumping = async {
        assert_eq!(pump(&from, &to, u64::MAX, &moved).await, Ok(Pumped::End));
        drop(to);
    };
    let reading = async {
        let (mut received, mut piece) = (Vec::new(), [0; 1000]);
        while let read @ 1.. = sink.read(&mut piece).await.unwrap() {
            received.extend_from_slice(&piece[..read]);
        }
        received
    };
    let ((), received) = soon(async { tokio::join!(pumping, reading) }).await;
    feeding.await.unwrap();
    assert!(received == bytes, "{} of {}", received.len(), bytes.len());
    assert_eq!(moved.bytes(), bytes.len() as u64);
}

#[tokio::test]
async fn a_pump_takes_no_more_than_its_limit() {
    for limit in [0, 1, 100, 100_000, BUSY, BUSY + 1, 5_000_001] {
        let (mut source, from) = pair().await;
        let (to, mut sink) = pair().await;
        let bytes = pattern(usize::try_from(limit).unwrap() + 3);
        let sent = bytes.clone();
        let feeding = tokio::spawn(async move {
            send(&mut source, sent).await;
            source
        });
        let moved = Meter::default();
        let (from, to) = (Stream::from(from), Stream::from(to));
        let pumping = async {
            // A limit of nothing still waits for the source, so it is never asked for that.
            if limit > 0 {
                assert_eq!(pump(&from, &to, limit, &moved).await, Ok(Pumped::Limit));
            }
            drop(to);
        };
        let reading = async {
            let mut received = Vec::new();
            sink.read_to_end(&mut received).await.unwrap();
            received
        };
        let ((), received) = soon(async { tokio::join!(pumping, reading) }).await;
        assert!(received == bytes[..bytes.len() - 3], "{limit}");
        let source = feeding.await.unwrap();
        let mut left = vec![0; 3];
        let Stream::Plain(mut from) = from else { panic!("it is no other") };
        soon(from.read_exact(&mut left)).await.unwrap();
        assert_eq!(left, bytes[bytes.len() - 3..], "{limit}");
        drop(source);
    }
}

#[tokio::test]
async fn a_fast_stream_leaves_others_their_turns() {
    let bytes = 16 * TURN;
    let (source, from) = pair().await;
    let (to, sink) = pair().await;
    let blocking = |stream: TcpStream| {
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    };
    let (mut source, mut sink) = (blocking(source), blocking(sink));
    // Each has a thread, so that there is always something to read, and room to write.
    let feeding = std::thread::spawn(move || std::io::Write::write_all(&mut source, &vec![7; bytes]));
    let reading = std::thread::spawn(move || std::io::copy(&mut sink, &mut std::io::sink()));
    let turns = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counting.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    let (from, to, moved) = (Stream::from(from), Stream::from(to), Meter::default());
    assert_eq!(soon(pump(&from, &to, u64::MAX, &moved)).await, Ok(Pumped::End));
    other.abort();
    assert!(turns.load(Ordering::Relaxed) >= bytes / TURN - 1, "{turns:?}");
    drop(to);
    feeding.join().unwrap().unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), bytes as u64);
}

/// Held by the tests that look at how many pipes there are.
static COUNTING_PIPES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn a_stream_is_spliced_and_a_pause_gives_its_pipe_back() {
    let _alone = COUNTING_PIPES.lock().await;
    let (mut client, mut server, tunnel, _) = tunnelled().await;
    let bytes = pattern(8 << 20);
    let sent = bytes.clone();
    let sending = tokio::spawn(async move {
        send(&mut client, &sent).await;
        client
    });
    let mut received = vec![0; bytes.len()];
    soon(server.read_exact(&mut received)).await.unwrap();
    assert!(received == bytes);
    // Other tests splice at the same time, but none for long.
    let mut client = sending.await.unwrap();
    assert!(PIPES_IN_USE.load(Ordering::Relaxed) > 0);
    soon(async {
        while PIPES_IN_USE.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    send(&mut client, "small again").await;
    expect(&mut server, "small again").await;
    drop((client, server));
    assert_eq!(soon(tunnel).await.unwrap(), TunnelEnd::Done);
}

#[test]
fn there_are_only_so_many_pipes_and_each_is_worth_it() {
    let _alone = COUNTING_PIPES.blocking_lock();
    let moved = Meter::default();
    let pipes: Vec<Pipe> = std::iter::from_fn(|| Pipe::acquire(&moved)).collect();
    assert!(pipes.len() <= PIPES);
    assert!(pipes.iter().all(|pipe| pipe.size >= usize::try_from(LEAST_PIPE_SIZE).unwrap()));
}
