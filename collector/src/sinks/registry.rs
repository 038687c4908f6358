//! Kinds of sinks, which the scheme of a URL selects.

use std::fmt;
use std::str::FromStr;

use polymeter_proto::text::Text;

use super::jsonl::JsonLines;
use super::sink::{RelativePath, Sink};

struct SinkKind {
    scheme: &'static str,
    /// Form of the URLs, for messages.
    form: &'static str,
    /// Checks the part after the scheme; opens nothing.
    check: fn(&str) -> Result<(), RelativePath>,
    /// Opens nothing: the sink's thread does that, since it may take time.
    create: fn(&str) -> Box<dyn Sink>,
}

/// A new kind is a file and a line here.
static KINDS: &[SinkKind] = &[SinkKind {
    scheme: "jsonl",
    form: "jsonl:PATH",
    check: JsonLines::check,
    create: |path| Box::new(JsonLines::new(path)),
}];

/// URL such as `jsonl:/var/log/polymeter/samples.jsonl`.
#[derive(Clone)]
pub struct SinkUrl {
    kind: &'static SinkKind,
    place: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSinkUrl {
    #[error("unknown kind of sink `{0}`: expected {forms}", forms = forms())]
    UnknownKind(Text),
    #[error("{reason}: expected {form}")]
    Place { reason: RelativePath, form: &'static str },
}

fn forms() -> String {
    KINDS.iter().map(|kind| kind.form).collect::<Vec<_>>().join(", ")
}

impl FromStr for SinkUrl {
    type Err = InvalidSinkUrl;

    fn from_str(text: &str) -> Result<Self, InvalidSinkUrl> {
        let unknown = || InvalidSinkUrl::UnknownKind(Text::of(text));
        let (scheme, place) = text.split_once(':').ok_or_else(unknown)?;
        let kind = KINDS.iter().find(|kind| kind.scheme == scheme).ok_or_else(unknown)?;
        (kind.check)(place).map_err(|reason| InvalidSinkUrl::Place { reason, form: kind.form })?;
        Ok(Self { kind, place: place.to_owned() })
    }
}

impl SinkUrl {
    pub(super) fn create(&self) -> Box<dyn Sink> {
        (self.kind.create)(&self.place)
    }
}

impl fmt::Display for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.scheme, self.place)
    }
}

impl fmt::Debug for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SinkUrl({self})")
    }
}

impl PartialEq for SinkUrl {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.scheme, &self.place) == (other.kind.scheme, &other.place)
    }
}

impl Eq for SinkUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls_and_names_the_forms_of_others() {
        let url: SinkUrl = "jsonl:/run/samples.jsonl".parse().unwrap();
        assert_eq!(url.to_string(), "jsonl:/run/samples.jsonl");
        for (text, part) in [
            ("", "unknown kind of sink"),
            ("/run/samples", "unknown kind of sink"),
            ("kafka:x", "unknown kind of sink `kafka:x`"),
            ("jsonl:", "not absolute"),
            ("jsonl:samples", "not absolute"),
        ] {
            let error = text.parse::<SinkUrl>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("jsonl:PATH"), "{text}: {error}");
        }
    }
}
