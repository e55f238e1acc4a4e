//! `host:port` from a program: what is taken is one host to the parsers of other people too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_config::{Host, Target, Via};
use url::Url;

fuzz_target!(|bytes: &[u8]| {
    let Ok(target) = Target::parse_authority(bytes, Via::Connect) else { return };
    let again = Target::parse_authority(target.to_string().as_bytes(), Via::Connect).expect("its own spelling is right");
    assert_eq!((again.host(), again.port()), (target.host(), target.port()));

    let text = str::from_utf8(bytes).expect("what is taken is ASCII");
    if let Ok(authority) = text.parse::<http::uri::Authority>() {
        assert_eq!(bare(authority.host()), target.host().to_string(), "`http` reads another host");
        assert_eq!(authority.port_u16(), Some(target.port().get()), "`http` reads another port");
    }
    if let Ok(url) = Url::parse(&format!("http://{text}/")) {
        let same = match (url.host(), target.host()) {
            (Some(url::Host::Domain(name)), Host::Name(ours)) => bare(name) == ours.to_string(),
            (Some(url::Host::Ipv4(address)), Host::Address(ours)) => *ours == address,
            // `url` keeps an IPv4-mapped address as it is written; it is dialled as the same one.
            (Some(url::Host::Ipv6(address)), Host::Address(ours)) => *ours == std::net::IpAddr::V6(address).to_canonical(),
            _ => false,
        };
        assert!(same, "`url` reads {:?}, and netbox {}", url.host(), target.host());
        assert_eq!(url.port_or_known_default(), Some(target.port().get()), "`url` reads another port");
    }
});

/// A host as netbox writes it: lower case, without brackets and without one trailing dot.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => std::net::IpAddr::V6(address).to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}
