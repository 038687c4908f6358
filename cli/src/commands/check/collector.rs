//! A collector, by the pages at its `metrics_listen`.

use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use polymeter_client::connection::stream::Stream;
use polymeter_collector::{CollectorConfig, limits};
use polymeter_proto::units;
use polymeter_service::clock;

use super::range::Range;
use super::verdict::{Figure, State, Verdict};
use crate::failure::Failure;
use crate::http_get::get;
use crate::local_config::collector_config;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Agents send at least every 30 s.
const AGE_WARNING_S: u64 = 60;
const AGE_CRITICAL_S: u64 = 300;

/// Metrics of the page.
const NEWEST_COMMIT: &str = "polymeter_collector_newest_commit_timestamp_seconds";
const QUEUE_MESSAGES: &str = "polymeter_collector_queue_messages";
const QUEUE_BYTES: &str = "polymeter_collector_queue_bytes";

/// Address of the pages: the one given, else that of the configuration.
pub(super) fn address(given: Option<&str>, path: &Path) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let unknown = |cause: String| {
        Failure::Failed(format!(
            "cannot check the collector: {cause}; set `metrics_listen`, or name its address: --collector HOST:PORT"
        ))
    };
    let config: CollectorConfig = collector_config(path).map_err(|faults| unknown(faults.to_string()))?;
    let Some(address) = config.metrics_listen else {
        return Err(unknown(format!("{} has no `metrics_listen`", path.display())));
    };
    let any = address.ip().is_unspecified();
    Ok(if any { format!("localhost:{}", address.port()) } else { address.to_string() })
}

pub(super) fn check(address: &str) -> Verdict {
    let subject = format!("collector at {address}");
    let page = match connect(address).and_then(|stream| get(stream, "/metrics")) {
        Ok(page) => page.body,
        Err(error) => return Verdict::critical(subject, format!("cannot reach it: {error}")),
    };
    let page = String::from_utf8_lossy(&page);
    let mut problems = Vec::new();
    match connect(address).and_then(|stream| get(stream, "/ready")) {
        Ok(answer) if answer.is_ok => {}
        Ok(_) => {
            problems.push((State::Critical, "the store does not answer; see the collector's log".to_owned()))
        }
        Err(error) => problems.push((State::Critical, format!("cannot reach it: {error}"))),
    }
    let now_s = Duration::from_nanos(clock::realtime_ns()).as_secs_f64();
    Verdict { subject, problems, figures: figures(&page, now_s) }
}

fn connect(address: &str) -> io::Result<Stream> {
    let mut last = io::Error::other("the host name does not resolve to an address");
    for address in address.to_socket_addrs()? {
        match Stream::tcp(address, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Values of a metric, one for each set of labels.
fn values<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = f64> {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.parse().ok()
    })
}

fn figures(page: &str, now_s: f64) -> Vec<Figure> {
    let age_s = values(page, NEWEST_COMMIT).next().map(|commit_s| (now_s - commit_s).max(0.0));
    // The fullest queue of a writer.
    let most = |name| values(page, name).reduce(f64::max);
    let limit_bytes = limits::QUEUE_BYTES as u64;
    let (messages, bytes) = (most(QUEUE_MESSAGES), most(QUEUE_BYTES));
    vec![
        Figure {
            name: "age",
            value: age_s,
            unit: "s",
            text: age_s.map_or_else(
                || "newest commit unknown".to_owned(),
                |age_s| format!("newest commit {} ago", units::elapsed(age_s)),
            ),
            warning: Some(Range::up_to(AGE_WARNING_S)),
            critical: Some(Range::up_to(AGE_CRITICAL_S)),
            max: None,
        },
        Figure {
            name: "queue",
            value: messages,
            unit: "",
            text: messages.map_or_else(
                || "queue unknown".to_owned(),
                |messages| format!("{} queued", units::counted(units::whole(messages), "message")),
            ),
            warning: None,
            critical: None,
            max: None,
        },
        Figure {
            name: "queue_bytes",
            value: bytes,
            unit: "B",
            text: bytes.map_or_else(|| "queue unknown".to_owned(), |bytes| units::bytes(units::whole(bytes))),
            // A writer's queue is nearly full: soon agents must keep their frames.
            warning: Some(Range::up_to(limit_bytes / 4 * 3)),
            critical: None,
            max: Some(limit_bytes),
        },
    ]
}
