//! Z85 (ZeroMQ's RFC 32): four bytes as five printable characters, none of which is a quote, a backslash or a
//! space.

pub const KEY_BYTES: usize = 32;

const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

pub(super) fn encode(key: &[u8; KEY_BYTES]) -> String {
    let (chunks, _) = key.as_chunks::<4>();
    chunks
        .iter()
        .flat_map(|chunk| {
            let number = u32::from_be_bytes(*chunk);
            (0..5)
                .rev()
                .filter_map(move |power| ALPHABET.get((number / 85_u32.pow(power) % 85) as usize).copied())
                .map(char::from)
        })
        .collect()
}

pub(super) fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    let (chunks, rest) = text.as_bytes().as_chunks::<5>();
    if chunks.len() * 4 != KEY_BYTES || !rest.is_empty() {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (chunk, bytes) in chunks.iter().zip(key.as_chunks_mut::<4>().0) {
        let mut number: u32 = 0;
        for character in chunk {
            let digit = ALPHABET.iter().position(|known| known == character)?;
            number = number.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        *bytes = number.to_be_bytes();
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_the_code_of_the_rfc() {
        // The server's public key in the example of libzmq's manual of CURVE.
        let (text, first) = ("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", [0x54, 0xfc, 0xba, 0x24]);
        let key = decode(text).unwrap();
        assert_eq!(key.first_chunk(), Some(&first));
        assert_eq!(encode(&key), text);
        assert_eq!(encode(&[0; 32]), "0".repeat(40));
        assert_eq!(encode(&[0xff; 32]), "%nSc0".repeat(8));
    }

    #[test]
    fn invalid_keys_are_rejected() {
        let beyond = "#".repeat(40);
        let texts = ["", "0", &"0".repeat(39), &"0".repeat(41), &beyond, &" ".repeat(40), &"é".repeat(20)];
        for text in texts {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_key_round_trips(key: [u8; KEY_BYTES]) {
            prop_assert_eq!(decode(&encode(&key)), Some(key));
        }

        #[test]
        fn any_text_is_a_key_or_none(text in ".{0,50}") {
            if let Some(key) = decode(&text) {
                prop_assert_eq!(encode(&key), text);
            }
        }
    }
}
