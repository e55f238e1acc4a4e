//! netbox
fn main() {}
