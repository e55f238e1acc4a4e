//! The outer side: what it would dial is told, and what the inner side agrees with is dialled.

use std::time::Duration;

use netbox_config::VettedAddr;
use tokio::time::timeout;

use super::{ADDRESS, ADDRESSES, MAX_LIST, list, parse_list};
use crate::dial::Dialed;
use crate::pipeline::Vetted;
use crate::socket::{self, Connection};

/// Tells an inner netbox what would be dialled, and keeps what it agrees with. `false`: that is nothing, or it went away.
pub(crate) async fn agree(client: &mut Connection, vetted: &mut Vetted, patience: Duration) -> bool {
    let would = list(vetted.addresses().iter().map(|address| address.socket_addr().ip()));
    let hint = format!("HTTP/1.1 103 Early Hints\r\n{ADDRESSES}: {would}\r\n\r\n");
    if socket::write_all(&client.stream, hint.as_bytes()).await.is_err() {
        return false;
    }
    let Ok(Some(chosen)) = timeout(patience, line(client)).await else { return false };
    let Some(chosen) = parse_list(&chosen) else { return false };
    vetted.keep(|address: &VettedAddr| chosen.contains(&address.socket_addr().ip()));
    !vetted.addresses().is_empty()
}

/// The next line, without its end.
async fn line(client: &mut Connection) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = client.buffer.iter().position(|byte| *byte == b'\n') {
            let line = client.buffer.split_to(end + 1);
            return line.strip_suffix(b"\r\n").map(<[u8]>::to_vec);
        }
        if client.buffer.len() > MAX_LIST || client.fill().await.ok()? == 0 {
            return None;
        }
    }
}

/// That the tunnel stands. What follows is the far side's.
pub(crate) fn established(upstream: &Dialed) -> String {
    format!("HTTP/1.1 200 Connection established\r\n{ADDRESS}: {}\r\n\r\n", upstream.address.ip())
}
