//! Queries, byte by byte.

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const PTR: u16 = 12;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;
pub const OPT: u16 = 41;
pub const SVCB: u16 = 64;
pub const HTTPS: u16 = 65;
pub const IXFR: u16 = 251;
pub const AXFR: u16 = 252;
pub const ANY: u16 = 255;

pub const IN: u16 = 1;
pub const CH: u16 = 3;

/// A header with recursion desired and these counts: questions, answers, authorities, additionals.
pub fn header(counts: [u16; 4]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x01, 0x00];
    counts.iter().for_each(|count| bytes.extend(count.to_be_bytes()));
    bytes
}

/// A name as labels: `a.example`, or the root where it is empty.
pub fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// A question section of one name in any form.
pub fn question(name: &[u8], kind: u16, class: u16) -> Vec<u8> {
    [name, &kind.to_be_bytes(), &class.to_be_bytes()].concat()
}

/// A plain query.
pub fn query(name: &str, kind: u16) -> Vec<u8> {
    raw_query(&labels(name), kind)
}

/// A query whose name is these bytes.
pub fn raw_query(name: &[u8], kind: u16) -> Vec<u8> {
    [header([1, 0, 0, 0]), question(name, kind, IN)].concat()
}

/// An OPT record: size, version, flags, options.
pub fn opt(size: u16, version: u8, flags: u16, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(OPT.to_be_bytes());
    bytes.extend(size.to_be_bytes());
    bytes.extend([0, version]);
    bytes.extend(flags.to_be_bytes());
    bytes.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
    bytes.extend(options);
    bytes
}

/// The query with these records in its additional section.
pub fn with_additional(query: Vec<u8>, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = query;
    bytes[11] = u8::try_from(records.len()).unwrap();
    records.iter().for_each(|record| bytes.extend(record));
    bytes
}

/// The query with an OPT record as resolvers send it.
pub fn with_edns(query: Vec<u8>) -> Vec<u8> {
    with_additional(query, &[opt(1232, 0, 0, &[])])
}

pub fn with_id(id: u16, query: Vec<u8>) -> Vec<u8> {
    let mut bytes = query;
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    bytes
}

/// The query with other flags: opcode, RD and the rest.
pub fn with_flags(flags: u16, query: Vec<u8>) -> Vec<u8> {
    let mut bytes = query;
    bytes[2..4].copy_from_slice(&flags.to_be_bytes());
    bytes
}
