//! Requests and answers of OTLP: a request has each sample once, and any bytes are an answer.

use polymeter_collector::sinks::otlp::fuzzing::{examine, read_answer};

pub fn body(data: &[u8]) {
    examine(data);
    read_answer(data);
}
