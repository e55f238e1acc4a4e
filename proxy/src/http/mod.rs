//! HTTP/1, judged request by request.
//!
//! One parser decides and forwards: what goes on is written from the parsed head, never from the bytes that arrived,
//! so that no two readers can disagree about where a message ends or whom it is for (RFC 9112 §11). What can be read
//! in two ways is refused.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod exchange;
pub(crate) mod fields;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod relay;
pub(crate) mod request;
pub(crate) mod response;
