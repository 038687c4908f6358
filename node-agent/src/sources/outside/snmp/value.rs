//! Values of objects, as numbers. Pure.

use polymeter_proto::catalogue::DeviceValue;
use snmp2::Value;

use crate::sources::outside::connection::Number;

/// Bytes of a text that states a number.
const NUMBER_BYTES: usize = 32;

/// How an object that holds a float begins in an opaque value: the tag of the type and its length.
const OPAQUE_FLOAT: [u8; 3] = [0x9f, 0x78, 4];

/// Number that a value states, with its type; none for other texts, and for objects that are missing.
pub(super) fn number(value: &Value<'_>) -> Option<(Number, DeviceValue)> {
    match value {
        Value::Counter32(count) => Some((Number::Whole((*count).into()), DeviceValue::Count32)),
        Value::Counter64(count) => Some((Number::Whole(*count), DeviceValue::Count)),
        Value::Unsigned32(number) | Value::Timeticks(number) => {
            Some((Number::Whole((*number).into()), DeviceValue::Gauge))
        }
        Value::Integer(number) => Some((signed(*number), DeviceValue::Gauge)),
        Value::OctetString(text) => stated(text).map(|number| (Number::Double(number), DeviceValue::Gauge)),
        Value::Opaque(bytes) => float(bytes).map(|number| (Number::Double(number), DeviceValue::Gauge)),
        Value::Boolean(_)
        | Value::Null
        | Value::ObjectIdentifier(_)
        | Value::Sequence(_)
        | Value::Set(_)
        | Value::Constructed(..)
        | Value::IpAddress(_)
        | Value::EndOfMibView
        | Value::NoSuchObject
        | Value::NoSuchInstance
        | Value::GetRequest(_)
        | Value::GetNextRequest(_)
        | Value::GetBulkRequest(_)
        | Value::Response(_)
        | Value::SetRequest(_)
        | Value::InformRequest(_)
        | Value::Trap(_)
        | Value::Report(_) => None,
    }
}

fn signed(number: i64) -> Number {
    match u64::try_from(number) {
        Ok(number) => Number::Whole(number),
        Err(_negative) => Number::Double(-polymeter_proto::units::to_f64(number.unsigned_abs())),
    }
}

/// Number in a text: `230.4`, perhaps with its unit.
fn stated(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= NUMBER_BYTES)?;
    let number: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number).filter(|number| number.is_finite())
}

fn float(bytes: &[u8]) -> Option<f64> {
    let bytes = bytes.strip_prefix(&OPAQUE_FLOAT)?.try_into().ok()?;
    Some(f64::from(f32::from_be_bytes(bytes))).filter(|number| number.is_finite())
}

/// Text of an object, such as the name of a port.
pub(super) fn text(value: &Value<'_>) -> Option<String> {
    let Value::OctetString(bytes) = value else { return None };
    let text = String::from_utf8_lossy(bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_several_forms() {
        let of = |value: Value<'_>| number(&value);
        assert_eq!(of(Value::Counter32(7)), Some((Number::Whole(7), DeviceValue::Count32)));
        assert_eq!(of(Value::Counter64(u64::MAX)), Some((Number::Whole(u64::MAX), DeviceValue::Count)));
        assert_eq!(of(Value::Integer(-5)), Some((Number::Double(-5.0), DeviceValue::Gauge)));
        assert_eq!(of(Value::Integer(i64::MIN)).map(|(number, _)| number.to_f64()), Some(-(2_f64.powi(63))));
        assert_eq!(of(Value::OctetString(b"230.4 V")), Some((Number::Double(230.4), DeviceValue::Gauge)));
        let opaque = [0x9f, 0x78, 4, 0x43, 0x66, 0x66, 0x66];
        let float = of(Value::Opaque(&opaque)).map(|(number, _)| number.to_f64()).unwrap();
        assert!((float - 230.4).abs() < 1e-4, "{float}");
        for nothing in [
            Value::Null,
            Value::NoSuchInstance,
            Value::OctetString(b"inf"),
            Value::OctetString(b""),
            Value::Opaque(b"x"),
        ] {
            assert_eq!(number(&nothing), None);
        }
    }
}
