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
    let read = question.name().to_ascii().to_ascii_lowercase();
    assert_eq!(read.strip_suffix('.').unwrap_or(&read), name);
    assert_eq!(u16::from(question.query_type()), kind);
});
