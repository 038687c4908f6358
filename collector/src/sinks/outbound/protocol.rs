//! What distinguishes the sinks: the names of series, and the form of requests and answers.

use bytes::Bytes;
use hyper::header::HeaderMap;
use polymeter_proto::exposition::Part;
use polymeter_proto::series::MetricDescriptor;

/// Declared once for each sink, and for each version that the configuration may demand.
#[derive(Debug)]
pub struct Protocol {
    /// Section of the configuration, which names the sink in metrics and messages, too.
    pub(crate) sink: &'static str,
    /// Value of the key `protocol`, if the section has one.
    pub(crate) version: &'static str,
    /// Directory that is used if the configuration names none.
    pub(crate) spool: &'static str,
    /// Labels whose names begin with `__`: `__name__`, and what else the protocol says about a series.
    pub(crate) names: fn(Named<'_>) -> Vec<(&'static str, String)>,
    /// Requests state since when a counter counts.
    pub(crate) has_starts: bool,
    pub(crate) form: &'static Form,
    /// Sent if the receiver does not know `form`.
    pub(crate) fall_back: Option<&'static Form>,
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        (self.sink, self.version) == (other.sink, other.version)
    }
}

impl Eq for Protocol {}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Named<'a> {
    Metric(&'a MetricDescriptor, Part),
    /// Gauge of 1 with the facts of a job.
    JobInfo,
}

/// Form of the requests and answers.
#[derive(Debug)]
pub(crate) struct Form {
    /// Version of the protocol, for the log.
    pub(crate) version: &'static str,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Makes a body of a compressed request of remote_write 1.0, which the spool has; none if it is damaged.
    pub(crate) encode: fn(&Bytes) -> Option<Body>,
    pub(crate) read: fn(Response<'_>) -> Statement,
    /// Tells for a status of 400 or more whether the request is repeated.
    pub(crate) is_repeated: fn(u16) -> bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    /// Empty if there is nothing to send.
    pub(crate) bytes: Bytes,
    /// Samples that are no numbers, which the protocol cannot state.
    pub(crate) not_numbers: u64,
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), not_numbers: 0 }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// What a receiver states about a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) count: Count,
    pub(crate) text: String,
}

/// Number of samples, as far as a receiver states it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    #[default]
    Unstated,
    Written(u64),
    Rejected(u64),
}

impl Count {
    /// Samples of an accepted request that were written.
    pub(crate) fn written_of(self, samples: u64) -> u64 {
        match self {
            Self::Unstated => samples,
            Self::Written(written) => written.min(samples),
            Self::Rejected(rejected) => samples.saturating_sub(rejected),
        }
    }
}

/// Reads an answer whose body is a message for people.
pub(crate) fn read_text(Response { body, .. }: Response<'_>) -> Statement {
    let text = String::from_utf8_lossy(body).trim().to_owned();
    Statement { count: Count::Unstated, text }
}

/// True for an overload and the faults of a server.
pub(crate) fn is_temporary(status: u16) -> bool {
    status == 429 || (500..600).contains(&status)
}
