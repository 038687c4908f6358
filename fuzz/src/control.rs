//! Lines of the control sockets, and the parts of answers that programs read.

use polymeter_proto::text::Unprintable;

pub fn body(data: &[u8]) {
    if let Err(refusal) = polymeter_agent::control::check(data) {
        // The message is sent as one line, and displayed.
        let message = refusal.message.as_str();
        assert!(!message.trim().is_empty() && !refusal.code.is_empty());
        assert!(message.chars().all(|c| Unprintable::of(c).is_none()));
        let field = refusal.field.unwrap_or_default();
        assert!(field.chars().count() <= 64 && field.chars().all(|c| Unprintable::of(c).is_none()));
    }
    polymeter_collector::control::check(data).ok();
}
