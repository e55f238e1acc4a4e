//! What an ssh server says first (RFC 4253 §4.2), and no more: here the far side speaks before the client does.

use std::io::{self, BufRead, BufReader, Write};

use super::Connection;

/// The software version in the banner.
pub const SOFTWARE: &str = "netbox_e2e_1.0";

/// Sends the banner, reads the client's, and hangs up.
pub(super) fn serve(connection: &Connection) -> io::Result<()> {
    let mut stream = &connection.stream;
    stream.write_all(format!("SSH-2.0-{SOFTWARE}\r\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    connection.shared.arrivals.first_bytes(connection.entry, None, Some(line.trim_end().to_owned()));
    Ok(())
}
