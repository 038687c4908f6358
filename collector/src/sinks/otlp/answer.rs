//! Answers of receivers.

use prost::Message;

use super::messages::{ExportResponse, PartialSuccess, Status};
use crate::sinks::outbound::{Count, Response, Statement, read_text};

const PROTOBUF: &str = "application/x-protobuf";

/// Reads the number of rejected points, or the message of a refusal. A body that is not protobuf is a text,
/// and that of a success states nothing.
pub(super) fn read(response: Response<'_>) -> Statement {
    let content_type = response.headers.get("content-type").and_then(|value| value.to_str().ok());
    let is_protobuf = content_type.is_some_and(|found| found.trim_start().starts_with(PROTOBUF));
    let is_success = (200..300).contains(&response.status);
    match (is_protobuf, is_success) {
        (true, true) => accepted(response.body),
        (true, false) => {
            let status = Status::decode(response.body).unwrap_or_default();
            Statement { count: Count::Unstated, text: text(&status.message) }
        }
        (false, _) => read_text(response),
    }
}

fn accepted(body: &[u8]) -> Statement {
    let Ok(ExportResponse { partial_success: Some(partial) }) = ExportResponse::decode(body) else {
        return Statement::default();
    };
    let PartialSuccess { rejected_data_points, error_message } = partial;
    let rejected = u64::try_from(rejected_data_points).unwrap_or_default();
    Statement { count: Count::Rejected(rejected), text: text(&error_message) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use hyper::header::{CONTENT_TYPE, HeaderMap};

    use super::*;

    fn answer(status: u16, content_type: &'static str, body: &[u8]) -> Statement {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]);
        read(Response { status, headers: &headers, body })
    }

    fn statement(count: Count, text: &str) -> Statement {
        Statement { count, text: text.to_owned() }
    }

    /// The bytes are those of protoc's encoder.
    #[test]
    fn rejected_points_and_messages_are_read() {
        let partial = b"\x0a\x0b\x08\x03\x12\x07too old";
        assert_eq!(answer(200, PROTOBUF, partial), statement(Count::Rejected(3), "too old"));
        let warning = b"\x0a\x06\x12\x04soon";
        assert_eq!(answer(200, PROTOBUF, warning), statement(Count::Rejected(0), "soon"));
        let negative = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(answer(200, PROTOBUF, negative), statement(Count::Rejected(0), ""));
        let status = b"\x08\x03\x12\x05no \xff!";
        assert_eq!(answer(400, PROTOBUF, status), statement(Count::Unstated, "no \u{fffd}!"));
        assert_eq!(answer(503, "text/plain", b" busy\n"), statement(Count::Unstated, "busy"));
        // Nothing, or what is no message.
        for body in [&b""[..], b"\x0a\xff", b"{}"] {
            assert_eq!(answer(200, PROTOBUF, body), Statement::default());
        }
        assert_eq!(answer(200, "application/json", b"{}").count, Count::Unstated);
    }
}
