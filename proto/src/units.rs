//! Numbers with units, in the form in which they are displayed. Pure.

/// Formats bytes with a binary prefix: `52.3 MiB`.
pub fn bytes(bytes: u64) -> String {
    bytes_f64(to_f64(bytes))
}

fn bytes_f64(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut units = units.iter();
    let mut unit = units.next();
    while value.abs() >= 1024.0
        && let Some(next) = units.next()
    {
        value /= 1024.0;
        unit = Some(next);
    }
    format!("{} {}", three_digits(value), unit.copied().unwrap_or("B"))
}

/// Formats a duration with a fitting unit: `12.3 ms`.
pub fn duration(ns: u64) -> String {
    seconds_f64(to_f64(ns) / 1e9)
}

pub fn duration_f64(ns: f64) -> String {
    seconds_f64(ns / 1e9)
}

fn seconds_f64(seconds: f64) -> String {
    let magnitude = seconds.abs();
    match magnitude {
        0.0 => "0 s".to_owned(),
        _ if magnitude < 1e-6 => format!("{} ns", three_digits(seconds * 1e9)),
        _ if magnitude < 1e-3 => format!("{} µs", three_digits(seconds * 1e6)),
        _ if magnitude < 1.0 => format!("{} ms", three_digits(seconds * 1e3)),
        _ => format!("{} s", three_digits(seconds)),
    }
}

/// Formats a time in the units of a clock: `1 h 30 min`, `2 d 3 h`; below a minute with three significant
/// digits.
pub fn elapsed(seconds: f64) -> String {
    if !(59.5..1e15).contains(&seconds) {
        return seconds_f64(seconds);
    }
    let whole = seconds.round();
    let (large, large_name, small, small_name) = match whole {
        _ if whole < 3600.0 => (60.0, "min", 1.0, "s"),
        _ if whole < 86_400.0 => (3600.0, "h", 60.0, "min"),
        _ => (86_400.0, "d", 3600.0, "h"),
    };
    let (count, rest) = ((whole / large).floor(), (whole % large / small).floor());
    let rest = if rest > 0.0 { format!(" {rest:.0} {small_name}") } else { String::new() };
    format!("{count:.0} {large_name}{rest}")
}

/// Formats a number with three significant digits, and a decimal prefix from 10,000 on.
pub fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e12 => format!("{}T", three_digits(value / 1e12)),
        magnitude if magnitude >= 1e9 => format!("{}G", three_digits(value / 1e9)),
        magnitude if magnitude >= 1e6 => format!("{}M", three_digits(value / 1e6)),
        magnitude if magnitude >= 1e4 => format!("{}k", three_digits(value / 1e3)),
        _ => three_digits(value),
    }
}

/// Returns the factor and the letter of the decimal prefix of a value.
fn prefix(value: f64) -> (f64, &'static str) {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let magnitude = value.abs();
    match prefixes.into_iter().find(|(factor, _)| magnitude >= *factor) {
        Some(found) => found,
        None if magnitude >= 1e-3 => (1e-3, "m"),
        None => (1.0, ""),
    }
}

/// Formats a value with a decimal prefix: `1.25 kW`, `350 mW`.
fn with_prefix(value: f64, symbol: &str) -> String {
    let (factor, prefix) = prefix(value);
    format!("{} {prefix}{symbol}", three_digits(value / factor))
}

/// Returns the symbol of a unit that is displayed with decimal prefixes.
fn symbol(unit: &str) -> Option<&'static str> {
    match unit {
        "joules" => Some("J"),
        "watts" => Some("W"),
        "hertz" => Some("Hz"),
        "volts" => Some("V"),
        "amperes" => Some("A"),
        "flop/s" => Some("FLOP/s"),
        _ => None,
    }
}

fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude >= 99.95 || magnitude == magnitude.trunc() => 0,
        magnitude if magnitude >= 9.995 => 1,
        magnitude if magnitude >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Formats a value of a metric with this unit, or a rate with a unit of [`rate_unit`].
pub fn value(unit: &str, value: f64) -> String {
    match unit {
        "bytes" => bytes_f64(value),
        "nanoseconds" => seconds_f64(value / 1e9),
        "percent" => format!("{} %", three_digits(value)),
        "celsius" => format!("{} °C", three_digits(value)),
        "rpm" => format!("{} rpm", number(value)),
        "bytes/s" => format!("{}/s", bytes_f64(value)),
        "1/s" => format!("{}/s", number(value)),
        "cores" => counted(three_digits(value), "core"),
        "s/s" => format!("{} {unit}", three_digits(value)),
        _ => symbol(unit).map_or_else(|| number(value), |symbol| with_prefix(value, symbol)),
    }
}

/// Formats a value with its error, both to the same place: `28.3 ± 0.4 kJ`. The error has one digit, or two
/// if its first one is 1.
pub fn with_error(unit: &str, number: f64, error: Option<f64>) -> String {
    let (Some(error), Some(symbol)) = (error, symbol(unit)) else { return value(unit, number) };
    let (factor, prefix) = prefix(number);
    let places = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6].into_iter();
    let digits = places.take_while(|place| error / factor * place < 1.95).count();
    let digits = if digits > 6 { 3 } else { digits };
    format!("{:.digits$} ± {:.digits$} {prefix}{symbol}", number / factor, error / factor)
}

/// Returns the unit of a counter's rate, and the factor by which its increase per second is multiplied. CPU
/// time per second is `cores`, energy per second is `watts`.
pub fn rate_unit(metric: &str, unit: &str) -> (&'static str, f64) {
    match unit {
        "bytes" => ("bytes/s", 1.0),
        "nanoseconds" if is_cpu_time(metric) => ("cores", 1e-9),
        "nanoseconds" => ("s/s", 1e-9),
        "joules" => ("watts", 1.0),
        _ => ("1/s", 1.0),
    }
}

pub fn rate(metric: &str, unit: &str, per_second: f64) -> String {
    let (rate_unit, factor) = rate_unit(metric, unit);
    value(rate_unit, per_second * factor)
}

/// Returns true for a counter of CPU time, whose rate is a number of cores.
pub fn is_cpu_time(metric: &str) -> bool {
    let of_cpu = metric.starts_with("cpu.") || metric.contains(".cpu.") || metric.ends_with("_clock");
    of_cpu && !metric.contains("pressure") && !metric.contains("throttled")
}

#[expect(clippy::cast_precision_loss, reason = "these numbers are rounded to three digits")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Converts to the nearest whole number; 0 for negative values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Formats a number with its noun: `1 core`, `0.74 cores`, `2 boxes`.
pub fn counted(number: impl ToString, noun: &str) -> String {
    let number = number.to_string();
    let ending = match number.as_str() {
        "1" => "",
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns which of `count` equal parts a fraction from 0 to 1 falls into.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the parts")]
pub fn part(fraction: f64, count: usize) -> usize {
    ((fraction.clamp(0.0, 1.0) * to_f64(count as u64)) as usize).min(count.saturating_sub(1))
}

#[expect(clippy::cast_precision_loss, reason = "a difference of times has far less than 53 bits")]
pub const fn seconds_between(from_ns: i64, to_ns: i64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// Formats the approximate time until `until_us`. Both times are microseconds since the epoch.
pub fn remaining(now_us: i64, until_us: i64) -> String {
    let rounded = |value: i64, unit: i64| value.saturating_add(unit / 2) / unit;
    match rounded(until_us.saturating_sub(now_us).max(0), 1_000_000) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", rounded(seconds, 60)),
        seconds => format!("{} h", rounded(seconds, 3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(54_840_524), "52.3 MiB");
        assert_eq!(bytes(1024), "1 KiB");
        assert_eq!(duration(12_345_678), "12.3 ms");
        assert_eq!(duration(1_003_000_000), "1.00 s");
        assert_eq!(duration(850), "850 ns");
        assert_eq!(number(1234.0), "1234");
        assert_eq!(number(12_345.0), "12.3k");
        assert_eq!(number(0.25), "0.250");
    }

    #[test]
    fn a_length_of_time_has_two_units() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.05, "50 ms"),
            (59.4, "59.4 s"),
            (59.6, "1 min"),
            (90.0, "1 min 30 s"),
            (3600.0, "1 h"),
            (5400.0, "1 h 30 min"),
            (183_600.0, "2 d 3 h"),
        ] {
            assert_eq!(elapsed(seconds), expected);
        }
    }

    #[test]
    fn a_rate_has_its_own_unit_not_its_counters() {
        assert_eq!(rate_unit("cpu.usage", "nanoseconds").0, "cores");
        assert_eq!(rate_unit("pressure.cpu.some.total", "nanoseconds").0, "s/s");
        assert_eq!(rate_unit("io.read.bytes", "bytes").0, "bytes/s");
        assert_eq!(rate_unit("perf.page_faults", "count").0, "1/s");
        assert_eq!(rate("cpu.usage", "nanoseconds", 1.5e9), "1.50 cores");
        assert_eq!(rate("perf.page_faults", "count", 25_000.0), "25k/s");
    }

    #[test]
    fn a_value_and_its_error_end_at_the_same_place() {
        for (number, error, expected) in [
            (28_345.0, Some(312.0), "28.3 ± 0.3 kJ"),
            (28_347.0, Some(140.0), "28.35 ± 0.14 kJ"),
            (28_345.0, Some(2500.0), "28 ± 2 kJ"),
            (28_345.0, Some(0.4), "28.3450 ± 0.0004 kJ"),
            (28_345.0, Some(0.0), "28.345 ± 0.000 kJ"),
            (400.0, Some(9000.0), "400 ± 9000 J"),
            (0.0, Some(0.25), "0.0 ± 0.2 J"),
            (28_345.0, None, "28.3 kJ"),
        ] {
            assert_eq!(with_error("joules", number, error), expected);
        }
    }

    #[test]
    fn physical_units_have_decimal_prefixes() {
        for (unit, number, expected) in [
            ("joules", 262_143.0, "262 kJ"),
            ("joules", 0.0, "0 J"),
            ("joules", 0.25, "250 mJ"),
            ("watts", 1250.0, "1.25 kW"),
            ("watts", -3.5, "-3.50 W"),
            ("watts", 0.000_25, "0.000 W"),
            ("hertz", 2_400_000_000.0, "2.40 GHz"),
            ("volts", 0.992, "992 mV"),
            ("amperes", 12.0, "12 A"),
            ("celsius", -5.25, "-5.25 °C"),
            ("rpm", 12_300.0, "12.3k rpm"),
            ("bytes/s", 12.5e9, "11.6 GiB/s"),
        ] {
            assert_eq!(value(unit, number), expected, "{unit} {number}");
        }
        assert_eq!(rate_unit("node.energy.package", "joules"), ("watts", 1.0));
        assert_eq!(rate("node.energy.package", "joules", 312.5), "312 W");
        assert_eq!(rate_unit("node.cpu.throttled.thermal.time", "nanoseconds").0, "s/s");
    }

    #[test]
    fn remaining_time_is_rounded_and_never_negative() {
        assert_eq!(
            [-7, 0, 119, 120, 7199, 7200]
                .map(|seconds| remaining(5_000_000, 5_000_000 + seconds * 1_000_000)),
            ["0 s", "0 s", "119 s", "2 min", "120 min", "2 h"]
        );
    }

    #[test]
    fn a_noun_follows_its_number() {
        assert_eq!(counted(1, "core"), "1 core");
        assert_eq!(counted(0, "core"), "0 cores");
        assert_eq!(counted("0.74", "core"), "0.74 cores");
        assert_eq!(counted(2_u64, "process"), "2 processes");
        assert_eq!(value("cores", 1.0), "1 core");
    }
}
