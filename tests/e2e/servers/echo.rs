//! TCP servers that send back what they get: at once, or only after the client's FIN.

use std::io::{self, Read, Write};

use super::Connection;

/// Returns every byte as it comes.
pub(super) fn serve(connection: &Connection) -> io::Result<()> {
    let mut stream = &connection.stream;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        note(connection, &buffer[..length]);
        stream.write_all(&buffer[..length])?;
    }
}

/// Reads to the end, and then says how much that was. A proxy that does not pass on the half-close gets no answer.
pub(super) fn answer_after_fin(connection: &Connection) -> io::Result<()> {
    let mut stream = &connection.stream;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    note(connection, &all);
    stream.write_all(format!("{} bytes before the end\n", all.len()).as_bytes())
}

fn note(connection: &Connection, bytes: &[u8]) {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    connection.shared.arrivals.first_bytes(connection.entry, None, Some(line));
}
