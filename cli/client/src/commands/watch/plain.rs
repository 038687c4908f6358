//! Samples as lines of text or JSON, for files, pipes and programs.

use polymeter_proto::control::{Answer, LaggedLine, SamplesLine};

use super::source::WatchSource;
use crate::failure::Failure;
use crate::local::WatchLine;
use crate::output::printable::printable;
use crate::output::terminal;

#[derive(Debug, Clone, Copy)]
pub(super) struct LineOptions {
    /// Print the agent's lines unchanged.
    pub(super) json: bool,
    pub(super) count: Option<u64>,
}

/// Prints lines until the job ends, the reader closes the pipe, or the requested number of samples is
/// reached.
pub(super) async fn print(
    first: WatchLine,
    mut stream: WatchSource,
    options: LineOptions,
) -> Result<(), Failure> {
    let mut left = options.count.unwrap_or(u64::MAX);
    let mut line = first;
    loop {
        if let Answer::Refused(refusal) = line.answer {
            return Err(Failure::Refused(Box::new(refusal)));
        }
        if let Answer::Lagged(LaggedLine { samples }) = line.answer {
            terminal::print_error(&format!(
                "polymeter: {samples} samples not shown: the output is read too slowly\n"
            ));
        }
        let has_reader = if options.json {
            terminal::print_json_to_reader(&format!("{}\n", line.text))?
        } else {
            terminal::print_to_reader(&text(&line.answer, left))?
        };
        if !has_reader {
            return Ok(());
        }
        left = left.saturating_sub(samples(&line.answer));
        if left == 0 {
            return Ok(());
        }
        if matches!(line.answer, Answer::Ended(_)) {
            terminal::print_error("polymeter: the job has ended\n");
            return Ok(());
        }
        line = stream.next().await?;
    }
}

fn samples(answer: &Answer) -> u64 {
    if let Answer::Samples(SamplesLine { values, .. }) = answer { values.len() as u64 } else { 0 }
}

/// A line for each of at most `limit` samples: seconds since the epoch, series, value, and unit if there is
/// one.
fn text(answer: &Answer, limit: u64) -> String {
    let Answer::Samples(SamplesLine { metric, labels, unit, times_us, values, .. }) = answer else {
        return String::new();
    };
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let series = format!("{metric}{labels}");
    let series = printable(&series);
    let unit = unit.as_ref().map_or_else(String::new, |unit| format!(" {}", printable(unit)));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    times_us
        .iter()
        .zip(values)
        .take(limit)
        .map(|(time_us, value)| {
            let (seconds, micros) = (time_us.div_euclid(1_000_000), time_us.rem_euclid(1_000_000));
            let value = value.unwrap_or(f64::NAN);
            format!("{seconds}.{micros:06} {series} {value}{unit}\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_a_line() {
        let line = r#"{"answer":"samples","metric":"io.read.bytes","labels":{"device":"sda"},"unit":"bytes","kind":"counter","period":"1s","times_us":[1795186356000081,1795186357200079],"values":[4843040.0,null]}"#;
        let answer = serde_json::from_str(line).unwrap();
        assert_eq!(
            text(&answer, 7),
            "1795186356.000081 io.read.bytes{device=sda} 4843040 bytes\n\
             1795186357.200079 io.read.bytes{device=sda} NaN bytes\n"
        );
        assert_eq!(text(&answer, 1).lines().count(), 1);
        let answer = serde_json::from_str(r#"{"answer":"lagged","samples":3}"#).unwrap();
        assert_eq!(text(&answer, 7), "");
    }
}
