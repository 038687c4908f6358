//! Pure parts. The end-to-end tests read the controller of OpenIPMI, and one that lies.

use proptest::prelude::*;

use super::keys::{SessionKeys, Suite};
use super::packet::{open, seal};
use super::*;

/// Record of a sensor "CPU1 Temp" in degrees, of which bytes are changed.
fn record(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut record = vec![0; 48];
    record[..8].copy_from_slice(&[1, 0, 0x51, 1, 52, 0x20, 0, 7]);
    record[20..25].copy_from_slice(&[0x80, 1, 0, 0, 1]);
    record[47] = 0xc9;
    record.extend(b"CPU1 Temp");
    changes.iter().for_each(|(at, byte)| record[*at] = *byte);
    record
}

fn value(changes: &[(usize, u8)], reading: u8) -> Option<f64> {
    Sensor::parse(&record(changes)).map(|sensor| sensor.value(reading))
}

#[test]
fn readings_become_values_by_the_formula_of_the_record() {
    assert_eq!(value(&[], 42), Some(42.0));
    assert_eq!(value(&[], 0xf6), Some(-10.0), "two's complement");
    assert_eq!(value(&[(20, 0)], 0xf6), Some(246.0), "unsigned");
    assert_eq!(value(&[(20, 0x40)], 0xf6), Some(-9.0), "one's complement");
    assert_eq!(value(&[(20, 0xc0)], 1), None, "no number");
    // The factor and the offset have ten bits: 0x200 is the lowest.
    assert_eq!(value(&[(24, 0), (25, 0x80)], 2), Some(-1024.0));
    assert_eq!(value(&[(26, 0xff), (27, 0x40)], 2), Some(513.0));
    assert_eq!(value(&[(26, 1), (29, 0x02)], 2), Some(102.0), "the offset has an exponent of its own");
    assert_eq!(value(&[(29, 0xe0)], 42), Some(0.42));
    assert_eq!(value(&[(23, 0x0a)], 25), Some(5.0), "a square root");
    assert_eq!(value(&[(23, 7)], 4), Some(0.25));
    assert_eq!(value(&[(23, 0x70)], 4), None, "factors that differ from reading to reading");
    assert_eq!(value(&[(20, 0), (21, 2)], 212), Some(100.0), "from Fahrenheit");
    assert!(value(&[(20, 0), (21, 3)], 200).is_some_and(|value| (value + 73.15).abs() < 1e-9), "from kelvin");
}

#[test]
fn sensors_of_others_and_of_other_units_are_left_out() {
    for other in [(3, 2), (3, 0x12), (5, 0x22), (6, 0x10), (21, 20), (21, 0), (20, 0x88), (20, 0x82)] {
        assert_eq!(Sensor::parse(&record(&[other])), None, "{other:?}");
    }
    let percent = Sensor::parse(&record(&[(20, 1), (21, 0)])).unwrap();
    assert_eq!((percent.measures, percent.unit), (Unit::Percent, 0));
    assert_eq!(Sensor::parse(&record(&[(6, 3)])).unwrap().unit, 3);
    let whole = record(&[]);
    assert!(
        (0..whole.len()).all(|end| Sensor::parse(&whole[..end]).is_none_or(|sensor| sensor.name == "#7"))
    );
}

#[test]
fn names_have_eight_or_six_bits_a_character() {
    let name = |changes: &[(usize, u8)]| Sensor::parse(&record(changes)).unwrap().name;
    assert_eq!(name(&[]), "CPU1 Temp");
    assert_eq!(name(&[(47, 0xc4)]), "CPU1");
    // The example of the specification: "IPMI".
    assert_eq!(name(&[(47, 0x83), (48, 0x29), (49, 0xdc), (50, 0xa6)]), "IPMI");
    assert_eq!(name(&[(47, 0x44)]), "#7", "digits only");
    assert_eq!(name(&[(47, 0xc0)]), "#7");
    assert_eq!(name(&[(47, 0xdf)]), "#7", "it is cut off");
}

#[test]
fn addresses_are_the_power_or_sensors_of_a_unit() {
    assert_eq!(parse("power"), Some(Address::Power));
    assert_eq!(parse("sensors.fan"), Some(Address::Sensors(Unit::RevolutionsPerMinute, "*")));
    assert_eq!(parse("sensors.voltage:12V*"), Some(Address::Sensors(Unit::Volts, "12V*")));
    for wrong in ["", "fan", "sensors", "sensors.", "sensors.fan:", "power:x", "1.3.6.1"] {
        assert!(check_address(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn a_packet_is_opened_by_its_keys_only(
        message in prop::collection::vec(any::<u8>(), 0..120),
        key in any::<[u8; 20]>(),
        bit in any::<prop::sample::Index>(),
        end in any::<prop::sample::Index>(),
    ) {
        for (suite, other) in [(Suite::Sha1, Suite::Sha256), (Suite::Sha256, Suite::Sha1)] {
            let keys = SessionKeys::new(suite, &key);
            let packet = seal(&keys, [1, 2, 3, 4], 77, &[9; 16], &message);
            prop_assert_eq!(open(&keys, [1, 2, 3, 4], &packet), Some((77, message.clone())));
            prop_assert_eq!(open(&keys, [1, 2, 3, 5], &packet), None);
            prop_assert_eq!(open(&SessionKeys::new(other, &key), [1, 2, 3, 4], &packet), None);
            // What is before the session has no code, and its three other bytes are those of all packets.
            let bit = 32 + bit.index((packet.len() - 4) * 8);
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&keys, [1, 2, 3, 4], &changed), None);
            prop_assert_eq!(open(&keys, [1, 2, 3, 4], &packet[..end.index(packet.len())]), None);
        }
    }
}
