//! Lines of the control sockets, and what programs read of answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for checked in [polymeter_agent::control::check(data)] {
        if let Err(refusal) = checked {
            // It travels as a line of its own, and is shown to a person.
            assert!(!refusal.message.is_empty() && !refusal.code.is_empty());
            assert!(refusal.field.is_none_or(|field| field.chars().count() <= 64));
        }
    }
    polymeter_collector::control::check(data).ok();
});
