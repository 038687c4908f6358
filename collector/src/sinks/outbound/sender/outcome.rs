//! Meaning of a receiver's answers: pure.

use std::time::Duration;

use polymeter_proto::text::Text;
use polymeter_service::http_client::NoAnswer;

use crate::sinks::outbound::http::{Answer, retry_delay};
use crate::sinks::outbound::protocol::{Count, Form, Statement};

/// Agreement with the receiver about the form of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Negotiation {
    pub(super) form: &'static Form,
    /// The receiver has not confirmed the form yet, and there is another one.
    pub(super) is_trying: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted(Statement),
    /// Repeated, not before the delay that the receiver asks for.
    Retry(String, Option<Duration>),
    /// Repeated in the other form.
    FallBack,
    Refused(Answer),
}

/// Decides what an answer means. `now` is the time since the epoch.
pub(super) fn classify(answer: Result<Answer, NoAnswer>, negotiation: Negotiation, now: Duration) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Outcome::Retry(error.to_string(), None),
    };
    let is_unknown = negotiation.is_trying && answer.statement.count == Count::Unstated;
    match answer.status {
        // A receiver of remote_write 1.0 that ignores the content type finds no series, and reports success
        // without the headers of 2.0.
        200..300 if is_unknown => Outcome::FallBack,
        200..300 => Outcome::Accepted(answer.statement),
        status if (negotiation.form.is_repeated)(status) => {
            let delay = answer.retry_after.as_deref().and_then(|value| retry_delay(value, now));
            Outcome::Retry(describe(&answer), delay)
        }
        // Refusals of the sender are no statement about the version.
        status if is_unknown && ![401, 403, 404].contains(&status) => Outcome::FallBack,
        _ => Outcome::Refused(answer),
    }
}

/// Status and message of a receiver, made printable and short.
pub(super) fn describe(answer: &Answer) -> String {
    format!("status {}: {}", answer.status, Text::of(&answer.statement.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::remote_write::{AUTO, V1, V2};

    const TRYING: Negotiation = Negotiation { form: AUTO.form, is_trying: true };

    fn answer(status: u16, written: Option<u64>) -> Answer {
        Answer { status, retry_after: None, statement: statement(written) }
    }

    fn statement(written: Option<u64>) -> Statement {
        Statement { count: written.map_or(Count::Unstated, Count::Written), text: String::new() }
    }

    const fn agreed(form: &'static Form) -> Negotiation {
        Negotiation { form, is_trying: false }
    }

    #[test]
    fn answers_are_classified_as_the_specifications_say() {
        let (v1, v2) = (agreed(V1.form), agreed(V2.form));
        let of =
            |status, written, negotiation| classify(Ok(answer(status, written)), negotiation, Duration::ZERO);
        assert_eq!(of(204, None, v1), Outcome::Accepted(statement(None)));
        assert_eq!(of(204, Some(7), TRYING), Outcome::Accepted(statement(Some(7))));
        assert_eq!(of(200, None, TRYING), Outcome::FallBack, "Prometheus 2.42 ignores the content type");
        assert_eq!(of(415, None, TRYING), Outcome::FallBack);
        assert_eq!(of(400, None, TRYING), Outcome::FallBack);
        assert_eq!(of(415, None, v2), Outcome::Refused(answer(415, None)));
        for status in [301, 400, 401, 404, 413, 422] {
            assert_eq!(of(status, None, v1), Outcome::Refused(answer(status, None)));
        }
        assert_eq!(of(401, None, TRYING), Outcome::Refused(answer(401, None)));
        for status in [429, 500, 502, 503, 599] {
            assert!(matches!(of(status, None, TRYING), Outcome::Retry(_, None)), "{status}");
        }
        let busy = Answer { retry_after: Some("7".to_owned()), ..answer(429, None) };
        let delay = Some(Duration::from_secs(7));
        assert_eq!(
            classify(Ok(busy), v1, Duration::ZERO),
            Outcome::Retry("status 429: not stated".to_owned(), delay)
        );
    }

    #[test]
    fn messages_of_receivers_are_short_and_printable() {
        let text = format!("a\u{1b}[31m{}", "ü".repeat(1000));
        let message =
            describe(&Answer { statement: Statement { text, ..statement(None) }, ..answer(400, None) });
        assert!(message.starts_with("status 400: a") && message.len() < 1100, "{message}");
        assert!(!message.contains('\u{1b}'));
    }
}
