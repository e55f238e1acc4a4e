//! DNS queries: the name that is judged is the name that another library reads, and every answer is a message.
#![no_main]

use hickory_proto::op::{Message, MessageType};
use libfuzzer_sys::fuzz_target;
use netbox_proxy::fuzzing::dns_query;

fuzz_target!(|bytes: &[u8]| {
    let Some(query) = dns_query(bytes) else { return };
    let answer = Message::from_vec(&query.answer).expect("an answer is a message");
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    let (Some((name, kind)), Ok(theirs)) = (query.question, Message::from_vec(bytes)) else { return };
    let [question] = &theirs.queries[..] else { panic!("another number of questions") };
    // Label by label: as a text, the other library escapes what a label may begin with.
    let read: Vec<_> = question.name().iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
    assert_eq!(read.join("."), name);
    assert_eq!(u16::from(question.query_type()), kind);
});
