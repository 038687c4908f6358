//! Units, kinds and types of values.

use serde::{Deserialize, Serialize};

/// Unit of the stored values of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    Bytes,
    Nanoseconds,
    /// Percent of the time, 0 to 100.
    Percent,
    Pages,
    /// Sectors of 512 bytes.
    Sectors,
    /// Cycles of a processor, or ticks of another hardware clock.
    Cycles,
    Count,
    /// Value of the series' label `unit`; no unit without that label. User-supplied metrics have it, so that
    /// different users can use different units for the same name.
    Labelled,
    Celsius,
    /// Joules. The rate of such a counter is a power in watts.
    Joules,
    Watts,
    Hertz,
    Volts,
    Amperes,
    RevolutionsPerMinute,
    /// Speed of a link, or a measured rate.
    BytesPerSecond,
}

impl Unit {
    pub const ALL: [Self; 16] = [
        Self::Bytes,
        Self::Nanoseconds,
        Self::Percent,
        Self::Pages,
        Self::Sectors,
        Self::Cycles,
        Self::Count,
        Self::Labelled,
        Self::Celsius,
        Self::Joules,
        Self::Watts,
        Self::Hertz,
        Self::Volts,
        Self::Amperes,
        Self::RevolutionsPerMinute,
        Self::BytesPerSecond,
    ];

    /// Returns the unit as it is written in documents and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nanoseconds => "nanoseconds",
            Self::Percent => "percent",
            Self::Pages => "pages",
            Self::Sectors => "sectors",
            Self::Cycles => "cycles",
            Self::Count => "count",
            Self::Labelled => "labelled",
            Self::Celsius => "celsius",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Hertz => "hertz",
            Self::Volts => "volts",
            Self::Amperes => "amperes",
            Self::RevolutionsPerMinute => "rpm",
            Self::BytesPerSecond => "bytes/s",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Never decreases while its source exists. Differences of values are meaningful.
    Counter,
    /// Increases and decreases. Each value is meaningful.
    Gauge,
}

impl Kind {
    /// Returns the kind as it is written in documents and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Number {
    Unsigned,
    /// Integer in two's complement.
    Signed,
    /// An IEEE 754 double.
    Float,
}

impl Number {
    /// Converts `bits` to the double that the stores keep. Integers beyond 2^53 are rounded to the nearest
    /// double.
    #[expect(clippy::cast_precision_loss, reason = "the stores keep doubles, as documented")]
    pub const fn to_f64(self, bits: u64) -> f64 {
        match self {
            Self::Unsigned => bits as f64,
            Self::Signed => bits.cast_signed() as f64,
            Self::Float => f64::from_bits(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_bits_by_their_type() {
        assert_eq!(Number::Unsigned.to_f64(u64::MAX), 18_446_744_073_709_551_615.0);
        assert_eq!(Number::Signed.to_f64(u64::MAX), -1.0);
        assert_eq!(Number::Float.to_f64(0.5_f64.to_bits()), 0.5);
    }
}
