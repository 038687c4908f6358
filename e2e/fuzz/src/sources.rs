//! The texts and records of the agent's sources other than kernel text files: the first byte of an input
//! selects the parser.

use polymeter_agent::sources::fuzzing::PARSERS;

pub fn body(data: &[u8]) {
    let Some((key, bytes)) = data.split_first() else { return };
    if let Some(parser) = PARSERS.iter().find(|parser| parser.key == *key) {
        (parser.check)(bytes);
    }
}
