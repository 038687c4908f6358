//! Sessions of reading, in both directions: any line is a query or a refusal, any bytes are a frame or an
//! error.

use polymeter_proto::control::ReadRequest;
use polymeter_proto::limits;
use polymeter_proto::read::{Frame, Query, frame_length};

pub fn body(data: &[u8]) {
    drop(ReadRequest::parse(data));
    match Query::parse(data) {
        Ok(query) => {
            if let Query::Samples { series, .. } | Query::Buckets { series, .. } = &query {
                assert!(series.ids().count() as u64 <= limits::QUERY_SERIES);
            }
            assert_eq!(Query::parse(&query.to_line()), Ok(query));
        }
        Err(refusal) => assert!(!refusal.message.as_str().trim().is_empty()),
    }
    if let Some((head, _)) = data.split_first_chunk() {
        assert!(frame_length(*head).map_or(true, |length| length <= limits::READ_FRAME_BYTES));
    }
    if let Ok(frame) = Frame::decode(data) {
        // Names that are made valid may be longer. Values may not be numbers, which differ from themselves.
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if frame.encode(&mut once).is_ok() {
            let (_, content) = once.split_first_chunk::<4>().unwrap();
            Frame::decode(content).unwrap().encode(&mut twice).unwrap();
            assert_eq!(once, twice);
        }
    }
}
