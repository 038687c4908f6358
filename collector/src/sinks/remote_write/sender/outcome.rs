//! Meaning of a receiver's answers: pure.

use std::time::Duration;

use polymeter_proto::text::Text;
use polymeter_service::http_client::NoAnswer;

use crate::sinks::remote_write::http::{Answer, retry_delay};

/// Agreement with the receiver about the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Negotiation {
    V1 = 1,
    /// The receiver confirmed it, or the configuration demands it.
    V2 = 2,
    /// The receiver has not confirmed 2.0 yet.
    Trying = 3,
    /// InfluxDB's line protocol.
    Lines = 4,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A receiver of 2.0 states how many samples it has written.
    Accepted(Option<u64>),
    /// Repeated, not before the delay that the receiver asks for.
    Retry(String, Option<Duration>),
    /// Repeated with 1.0.
    FallBack,
    Refused(Answer),
}

/// Decides what an answer means. `now` is the time since the epoch.
pub(super) fn classify(answer: Result<Answer, NoAnswer>, negotiation: Negotiation, now: Duration) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Outcome::Retry(error.to_string(), None),
    };
    let is_trying = negotiation == Negotiation::Trying;
    match answer.status {
        // A receiver of 1.0 that ignores the content type finds no series, and reports success without the
        // headers of 2.0.
        200..300 if is_trying && answer.written.is_none() => Outcome::FallBack,
        200..300 => Outcome::Accepted(answer.written),
        429 | 500..600 => {
            let delay = answer.retry_after.as_deref().and_then(|value| retry_delay(value, now));
            Outcome::Retry(describe(&answer), delay)
        }
        // Refusals of the sender are no statement about the version.
        _ if is_trying && answer.written.is_none() && ![401, 403, 404].contains(&answer.status) => {
            Outcome::FallBack
        }
        _ => Outcome::Refused(answer),
    }
}

/// Status and message of a receiver, made printable and short.
pub(super) fn describe(answer: &Answer) -> String {
    format!("status {}: {}", answer.status, Text::of(&answer.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, written: Option<u64>) -> Answer {
        Answer { status, retry_after: None, written, text: String::new() }
    }

    #[test]
    fn answers_are_classified_as_the_specifications_say() {
        use Negotiation::{Trying, V1, V2};
        let of =
            |status, written, negotiation| classify(Ok(answer(status, written)), negotiation, Duration::ZERO);
        assert_eq!(of(204, None, V1), Outcome::Accepted(None));
        assert_eq!(of(204, Some(7), Trying), Outcome::Accepted(Some(7)));
        assert_eq!(of(200, None, Trying), Outcome::FallBack, "Prometheus 2.42 ignores the content type");
        assert_eq!(of(415, None, Trying), Outcome::FallBack);
        assert_eq!(of(400, None, Trying), Outcome::FallBack);
        assert_eq!(of(415, None, V2), Outcome::Refused(answer(415, None)));
        for status in [301, 400, 401, 404, 413, 422] {
            assert_eq!(of(status, None, V1), Outcome::Refused(answer(status, None)));
        }
        assert_eq!(of(401, None, Trying), Outcome::Refused(answer(401, None)));
        for status in [429, 500, 502, 503, 599] {
            assert!(matches!(of(status, None, Trying), Outcome::Retry(_, None)), "{status}");
        }
        let busy = Answer { retry_after: Some("7".to_owned()), ..answer(429, None) };
        let delay = Some(Duration::from_secs(7));
        assert_eq!(
            classify(Ok(busy), V1, Duration::ZERO),
            Outcome::Retry("status 429: not stated".to_owned(), delay)
        );
    }

    #[test]
    fn messages_of_receivers_are_short_and_printable() {
        let text = format!("a\u{1b}[31m{}", "ü".repeat(1000));
        let message = describe(&Answer { text, ..answer(400, None) });
        assert!(message.starts_with("status 400: a") && message.len() < 1100, "{message}");
        assert!(!message.contains('\u{1b}'));
    }
}
