//! Queries of the page `/federate`: any bytes are a selection or an error.

use polymeter_collector::federation::is_selection;

pub fn body(data: &[u8]) {
    let is_valid = is_selection(data);
    // Further parameters change nothing, and another selector nothing but the limit.
    assert_eq!(is_selection(&[b"a=b&", data].concat()), is_valid);
}
