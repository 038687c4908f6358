//! Sensors in the records of a controller. Source: "Intelligent Platform Management Interface Specification"
//! 2.0, sections 35.14, 36.3, 43.1 and 43.15. Pure.

use polymeter_proto::series::Unit;

/// Type of the records of sensors whose readings are numbers with a formula.
pub(super) const FULL_RECORD: u8 = 0x01;

/// Owner of the sensors that the controller reads itself. Others are on buses behind it.
const CONTROLLER: u8 = 0x20;

/// A sensor whose readings are numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sensor {
    pub(super) name: String,
    /// Logical unit of the controller.
    pub(super) unit: u8,
    pub(super) number: u8,
    pub(super) measures: Unit,
    formula: Formula,
}

/// How a reading becomes a number: `L((factor x reading + offset) x 10^exponent)`.
#[derive(Debug, Clone, PartialEq)]
struct Formula {
    format: Format,
    factor: f64,
    /// Offset, with an exponent of its own.
    offset: f64,
    exponent: i32,
    function: Function,
    /// Offset to subtract from the unit of the sensor, and then a divisor.
    shift: f64,
    divisor: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Unsigned,
    OnesComplement,
    TwosComplement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Same,
    NaturalLogarithm,
    Logarithm10,
    Logarithm2,
    Exponential,
    Power10,
    Power2,
    Reciprocal,
    Square,
    Cube,
    SquareRoot,
    CubeRoot,
}

impl Function {
    const ALL: [Self; 12] = [
        Self::Same,
        Self::NaturalLogarithm,
        Self::Logarithm10,
        Self::Logarithm2,
        Self::Exponential,
        Self::Power10,
        Self::Power2,
        Self::Reciprocal,
        Self::Square,
        Self::Cube,
        Self::SquareRoot,
        Self::CubeRoot,
    ];

    fn of(self, x: f64) -> f64 {
        match self {
            Self::Same => x,
            Self::NaturalLogarithm => x.ln(),
            Self::Logarithm10 => x.log10(),
            Self::Logarithm2 => x.log2(),
            Self::Exponential => x.exp(),
            Self::Power10 => 10_f64.powf(x),
            Self::Power2 => x.exp2(),
            Self::Reciprocal => x.recip(),
            Self::Square => x.powi(2),
            Self::Cube => x.powi(3),
            Self::SquareRoot => x.sqrt(),
            Self::CubeRoot => x.cbrt(),
        }
    }
}

impl Sensor {
    /// Reads a whole record. Returns none for a record of another kind, a sensor behind another bus, one of
    /// another unit, and one whose formula differs from reading to reading.
    pub(super) fn parse(record: &[u8]) -> Option<Self> {
        let byte = |index: usize| record.get(index).copied();
        let (owner, channel_and_unit) = (byte(5)?, byte(6)?);
        if byte(3)? != FULL_RECORD || owner != CONTROLLER || channel_and_unit >> 4 != 0 {
            return None;
        }
        let (units, base) = (byte(20)?, byte(21)?);
        let format = match units >> 6 {
            0 => Format::Unsigned,
            1 => Format::OnesComplement,
            2 => Format::TwosComplement,
            _ => return None,
        };
        // Neither a rate nor a product of units.
        let is_plain = units & 0b0011_1110 == 0;
        let (measures, shift, divisor) = measured(units & 1 == 1, base).filter(|_| is_plain)?;
        let function = *Function::ALL.get(usize::from(byte(23)? & 0x7f))?;
        let factor = signed(u16::from(byte(24)?) | u16::from(byte(25)? & 0xc0) << 2, 10);
        let offset = signed(u16::from(byte(26)?) | u16::from(byte(27)? & 0xc0) << 2, 10);
        let exponents = byte(29)?;
        let (exponent, of_offset) =
            (signed(u16::from(exponents >> 4), 4), signed(u16::from(exponents & 0xf), 4));
        let formula = Formula {
            format,
            factor: f64::from(factor),
            offset: shifted(f64::from(offset), of_offset),
            exponent,
            function,
            shift,
            divisor,
        };
        let number = byte(7)?;
        let name = name(byte(47)?, record.get(48..)?).unwrap_or_else(|| format!("#{number}"));
        Some(Self { name, unit: channel_and_unit & 3, number, measures, formula })
    }

    /// Value of a reading.
    pub(super) fn value(&self, reading: u8) -> f64 {
        let Formula { format, factor, offset, exponent, function, shift, divisor } = &self.formula;
        let raw = match format {
            Format::Unsigned => f64::from(reading),
            // The negative of a number has all its bits inverted.
            Format::OnesComplement if reading >= 0x80 => -f64::from(!reading),
            Format::OnesComplement => f64::from(reading),
            Format::TwosComplement => f64::from(reading.cast_signed()),
        };
        (function.of(shifted(factor * raw + offset, *exponent)) - shift) / divisor
    }
}

/// Unit of a sensor, with what is subtracted from its values, and the divisor behind it.
const fn measured(is_percent: bool, base: u8) -> Option<(Unit, f64, f64)> {
    Some(match base {
        _ if is_percent => (Unit::Percent, 0.0, 1.0),
        1 => (Unit::Celsius, 0.0, 1.0),
        2 => (Unit::Celsius, 32.0, 1.8),
        3 => (Unit::Celsius, 273.15, 1.0),
        4 => (Unit::Volts, 0.0, 1.0),
        5 => (Unit::Amperes, 0.0, 1.0),
        6 => (Unit::Watts, 0.0, 1.0),
        18 => (Unit::RevolutionsPerMinute, 0.0, 1.0),
        19 => (Unit::Hertz, 0.0, 1.0),
        _ => return None,
    })
}

/// `value x 10^exponent`. A division is exact where a negative power of ten is not.
fn shifted(value: f64, exponent: i32) -> f64 {
    if exponent < 0 { value / 10_f64.powi(-exponent) } else { value * 10_f64.powi(exponent) }
}

/// A number in two's complement of so many bits.
fn signed(value: u16, bits: u32) -> i32 {
    let sign = 1_i32 << (bits - 1);
    (i32::from(value) ^ sign) - sign
}

/// Name in one of the encodings that have letters.
fn name(kind_and_length: u8, bytes: &[u8]) -> Option<String> {
    let length = usize::from(kind_and_length & 0x1f);
    let bytes = bytes.get(..length)?;
    let text: String = match kind_and_length >> 6 {
        // Six bits for each character from the space on, the lowest first.
        2 => {
            let bit = |index: usize| bytes.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
            let character =
                |first: usize| (0..6).fold(0x20, |sum: u8, at| sum + (u8::from(bit(first + at)) << at));
            (0..length * 8 / 6).map(|index| char::from(character(index * 6))).collect()
        }
        3 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => return None,
    };
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    (!text.is_empty()).then(|| text.to_owned())
}

/// Any record of a sensor has a name and values for all readings.
pub(super) fn check(data: &[u8]) {
    let Some(sensor) = Sensor::parse(data) else { return };
    assert!(!sensor.name.is_empty() && sensor.unit < 4 && data.len() >= 48);
    (0..=u8::MAX).for_each(|reading| {
        std::hint::black_box(sensor.value(reading));
    });
}
