//! Formats of answers, and their choice by the client.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};

use super::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Csv,
    /// Sent as they happen.
    Events,
    Parquet,
}

impl Format {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Events => "events",
            Self::Parquet => "parquet",
        }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Events => "text/event-stream",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }

    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Events => "text/event-stream",
            Self::Parquet => "application/vnd.apache.parquet",
        })
    }
}

/// Returns the one of `offered` that the client asks for: with the parameter `format`, else with the header
/// `Accept`.
pub(crate) fn negotiate(
    offered: &[Format],
    parameter: Option<&str>,
    headers: &HeaderMap,
) -> Result<Format, Problem> {
    let names = || offered.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = parameter {
        let found = offered.iter().find(|format| format.name() == wanted);
        return found
            .copied()
            .ok_or_else(|| Problem::invalid("format", format_args!("expected one of {}", names())));
    }
    let mut is_stated = false;
    let mut best: Option<(f32, Format)> = None;
    for value in headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for range in value.split(',') {
            is_stated = true;
            let Some((quality, format)) = parse_range(offered, range) else { continue };
            if quality > 0.0 && best.is_none_or(|(found, _)| quality > found) {
                best = Some((quality, format));
            }
        }
    }
    match (best, offered.first()) {
        (Some((_, format)), _) => Ok(format),
        (None, Some(first)) if !is_stated => Ok(*first),
        (None, _) => Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            format!(
                "this resource has the formats {}; ask for one of them with `Accept` or `format`",
                names()
            ),
        )),
    }
}

/// Returns the quality of a media range, and the first offered format in it.
fn parse_range(offered: &[Format], range: &str) -> Option<(f32, Format)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let quality =
        quality.map_or(Some(1.0), |quality| quality.parse::<f32>().ok().filter(|q| q.is_finite()))?;
    offered
        .iter()
        .find(|format| {
            let media_type = format.media_type();
            let group = media_type.split_once('/').map(|(group, _)| group);
            media == "*/*"
                || media == media_type
                || media.strip_suffix("/*").is_some_and(|of| Some(of) == group)
        })
        .map(|format| (quality, *format))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Format; 2] = [Format::Json, Format::Csv];

    fn accept(value: &'static str) -> Result<Format, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(value));
        negotiate(&BOTH, None, &headers).map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn the_parameter_and_the_header_choose_the_format() {
        let none = HeaderMap::new();
        assert_eq!(negotiate(&BOTH, None, &none), Ok(Format::Json));
        assert_eq!(negotiate(&BOTH, Some("csv"), &none), Ok(Format::Csv));
        assert_eq!(negotiate(&BOTH, Some("xml"), &none).unwrap_err().status().as_u16(), 400);
        assert_eq!(negotiate(&BOTH[..1], Some("csv"), &none).unwrap_err().status().as_u16(), 400);
        for (value, expected) in [
            ("*/*", Ok(Format::Json)),
            ("text/csv", Ok(Format::Csv)),
            ("text/*", Ok(Format::Csv)),
            ("application/json;q=0.5, text/csv;q=0.9", Ok(Format::Csv)),
            ("text/html, application/xhtml+xml, */*;q=0.8", Ok(Format::Json)),
            ("image/png", Err(406)),
            ("text/csv;q=0", Err(406)),
            ("", Err(406)),
            ("application/json;q=nan", Err(406)),
        ] {
            assert_eq!(accept(value), expected, "{value}");
        }
    }
}
