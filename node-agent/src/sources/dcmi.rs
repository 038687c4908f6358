//! Command "Get Power Reading" of DCMI: requests and responses as bytes. Source: "Data Center Manageability
//! Interface Specification" 1.5, section 6.6.1; completion codes: "Intelligent Platform Management Interface
//! Specification" 2.0, table 5-2. Pure.

/// Network function of group extensions; that of a response is one more.
pub(in crate::sources) const NETFN: u8 = 0x2c;

pub(in crate::sources) const COMMAND: u8 = 0x02;

/// Group of DCMI, with which requests and responses begin.
const GROUP: u8 = 0xdc;

/// Data of a request: the group, the mode "system power statistics", and no further attributes.
pub(in crate::sources) const REQUEST: [u8; 4] = [GROUP, 0x01, 0x00, 0x00];

/// Bit of the state that is set while the controller measures.
const IS_ACTIVE: u8 = 1 << 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) enum NoPower {
    /// The controller does not have the command, and never will.
    Unsupported,
    /// The controller does not measure at the moment, or is busy.
    Later,
    /// Not a response to this command.
    Malformed,
}

/// Size of a response: the completion code, the group, four times two bytes of power (now, minimum, maximum,
/// mean), four of the time of the reading, four of the length of the statistics, the state. Numbers are
/// little-endian.
const RESPONSE_BYTES: usize = 19;

/// Completion codes of a controller that lacks the command, or the right to use it here: invalid command,
/// invalid for this unit, no such sensor, invalid field of the request, insufficient privilege, function
/// disabled.
const UNSUPPORTED: [u8; 6] = [0xc1, 0xc2, 0xcb, 0xcc, 0xd4, 0xd6];

/// Power in a response, in watts. `response` begins with the completion code.
pub(in crate::sources) fn power(response: &[u8]) -> Result<u16, NoPower> {
    match response.first() {
        Some(0x00) => {}
        Some(code) if UNSUPPORTED.contains(code) => return Err(NoPower::Unsupported),
        // Node busy, timeout, out of space, not in this state, and others that may pass.
        Some(_) => return Err(NoPower::Later),
        None => return Err(NoPower::Malformed),
    }
    // Later versions may append bytes.
    let Some(&[_, GROUP, low, high, .., state]) = response.first_chunk::<RESPONSE_BYTES>() else {
        return Err(NoPower::Malformed);
    };
    let power = u16::from_le_bytes([low, high]);
    // A node that answers takes power: controllers without the sensor state 0 W.
    if state & IS_ACTIVE == 0 || power == 0 { Err(NoPower::Later) } else { Ok(power) }
}

pub(in crate::sources) fn check(data: &[u8]) {
    let power = power(data);
    assert!(power.is_err() || (data.len() >= RESPONSE_BYTES && power != Ok(0)));
    assert_eq!(
        power == Err(NoPower::Malformed) && data.len() >= RESPONSE_BYTES,
        data.first() == Some(&0) && data.get(1) != Some(&GROUP) && data.len() >= RESPONSE_BYTES
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `ipmitool raw 0x2c 0x02 0xdc 0x01 0x00 0x00` of a server at 220 W, behind its completion code.
    const RESPONSE: [u8; 19] = [
        0x00, 0xdc, 0xdc, 0x00, 0x04, 0x00, 0x5e, 0x01, 0xc8, 0x00, 0x20, 0x5f, 0x3d, 0x65, 0xe8, 0x03, 0x00,
        0x00, 0x40,
    ];

    #[test]
    fn a_response_states_the_power_now() {
        assert_eq!(power(&RESPONSE), Ok(220));
        let mut idle = RESPONSE;
        idle[18] = 0;
        assert_eq!(power(&idle), Err(NoPower::Later), "the controller does not measure");
        idle[18] = !IS_ACTIVE;
        assert_eq!(power(&idle), Err(NoPower::Later), "the other bits are reserved");
        let mut zero = RESPONSE;
        zero[2] = 0;
        assert_eq!(power(&zero), Err(NoPower::Later));
        let mut highest = RESPONSE;
        (highest[2], highest[3], highest[18]) = (0xff, 0xff, 0xff);
        assert_eq!(power(&highest), Ok(65_535));
        assert_eq!(power(&[&RESPONSE[..], &[1, 2]].concat()), Ok(220), "a later version");
    }

    #[test]
    fn errors_of_the_controller_are_told_apart() {
        for code in [0xc1, 0xc2, 0xcb, 0xcc, 0xd4, 0xd6] {
            assert_eq!(power(&[code]), Err(NoPower::Unsupported), "{code:#x}");
            assert_eq!(power(&[code, 0xdc]), Err(NoPower::Unsupported), "with the group, {code:#x}");
        }
        // Busy, timeout, out of space, lost arbitration, not in this state, unspecified; one of the group,
        // one of a vendor.
        for code in [0xc0, 0xc3, 0xc4, 0x81, 0xd5, 0xff, 0x80, 0x01] {
            assert_eq!(power(&[code]), Err(NoPower::Later), "{code:#x}");
        }
        assert_eq!(power(&[]), Err(NoPower::Malformed));
        let mut other_group = RESPONSE;
        other_group[1] = 0x00;
        assert_eq!(power(&other_group), Err(NoPower::Malformed));
        for length in 1..RESPONSE.len() {
            assert_eq!(power(&RESPONSE[..length]), Err(NoPower::Malformed), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(power(&bytes).is_err() || bytes.len() >= RESPONSE_BYTES);
        }
    }
}
