//! Control messages in both directions: any bytes are a message or an error, and a message has one form.

use polymeter_proto::wire::message::{ToAgent, ToCollector};

pub fn body(data: &[u8]) {
    if let Ok(message) = ToCollector::decode(data) {
        assert_eq!(ToCollector::decode(&message.encode()).as_ref(), Ok(&message));
    }
    if let Ok(message) = ToAgent::decode(data) {
        assert_eq!(ToAgent::decode(&message.encode()).as_ref(), Ok(&message));
    }
}
