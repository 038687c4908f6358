//! What a node keeps of an interval of its ring, as text.

use polymeter_proto::control::KeepsAnswer;
use polymeter_proto::units;
use polymeter_service::time_text;

/// Samples, and what is missing of the interval.
pub(crate) fn keeps_text(keeps: &KeepsAnswer) -> String {
    let KeepsAnswer { begin_us, end_us, from_us, until_us, samples } = *keeps;
    let length = |begin_us: i64, end_us: i64| {
        units::elapsed(units::seconds_between(begin_us.saturating_mul(1000), end_us.saturating_mul(1000)))
    };
    let wanted = length(begin_us, end_us);
    let end = time_text::to_the_second(end_us);
    let Some((from_us, until_us)) = from_us.zip(until_us) else {
        return format!("{wanted} until {end} UTC; the ring has no samples of it yet");
    };
    if from_us <= begin_us && until_us >= end_us {
        return format!("{wanted} until {end} UTC; about {} so far", units::counted(samples, "sample"));
    }
    let mut text = format!(
        "{} of {wanted}, until {} UTC; about {}",
        length(from_us, until_us),
        time_text::to_the_second(until_us),
        units::counted(samples, "sample")
    );
    text.push_str(match (from_us > begin_us, until_us < end_us) {
        (true, false) => "; the ring has none before",
        (false, _) => "; the job, or the lease of its ring, ended then",
        (true, true) => "; the ring has none before, and the job, or its lease, ended then",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;
    const END_US: i64 = 1_790_000_030 * SECOND_US;

    #[test]
    fn what_is_missing_is_said() {
        let of = |part: Option<(i64, i64)>| {
            keeps_text(&KeepsAnswer {
                begin_us: END_US - 30 * SECOND_US,
                end_us: END_US,
                from_us: part.map(|(from_s, _)| END_US - from_s * SECOND_US),
                until_us: part.map(|(_, until_s)| END_US - until_s * SECOND_US),
                samples: 1234,
            })
        };
        assert_eq!(of(Some((30, 0))), "30 s until 2026-09-21 14:13:50 UTC; about 1234 samples so far");
        assert_eq!(of(None), "30 s until 2026-09-21 14:13:50 UTC; the ring has no samples of it yet");
        let late = of(Some((12, 0)));
        assert!(
            late.starts_with("12 s of 30 s, until") && late.ends_with("the ring has none before"),
            "{late}"
        );
        let short = of(Some((12, 4)));
        assert!(short.starts_with("8 s of 30 s") && short.ends_with("or its lease, ended then"), "{short}");
        let ended = of(Some((30, 4)));
        assert!(
            ended.starts_with("26 s of 30 s") && ended.ends_with("the lease of its ring, ended then"),
            "{ended}"
        );
    }
}
