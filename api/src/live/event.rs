//! Encoding of events (`text/event-stream`).

use bytes::Bytes;
use serde_json::{Value, to_writer};

use super::reducer::Point;

/// Comment that keeps proxies and clients from taking a quiet stream for a broken connection.
pub(crate) const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

/// Milliseconds after which a browser connects again.
pub(crate) const RETRY: Bytes = Bytes::from_static(b"retry: 5000\n\n");

/// JSON has no line breaks, which would end the event's data.
pub(crate) fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// Returns the event with points: a column for each of their members, and those of extents if there are any.
pub(super) fn values(points: &[Point]) -> Bytes {
    let mut text = Vec::with_capacity(64 + points.len() * 48);
    text.extend_from_slice(b"event: values\ndata: {\"id\":");
    column(&mut text, points, |text, point| to_writer(text, &point.series_id));
    text.extend_from_slice(b",\"time_us\":");
    column(&mut text, points, |text, point| to_writer(text, &point.time_us));
    text.extend_from_slice(b",\"value\":");
    column(&mut text, points, |text, point| to_writer(text, &point.value));
    if points.iter().any(|point| point.extent.count != 1) {
        text.extend_from_slice(b",\"count\":");
        column(&mut text, points, |text, point| to_writer(text, &point.extent.count));
        text.extend_from_slice(b",\"min\":");
        column(&mut text, points, |text, point| to_writer(text, &point.extent.min));
        text.extend_from_slice(b",\"mean\":");
        column(&mut text, points, |text, point| to_writer(text, &point.extent.mean));
        text.extend_from_slice(b",\"max\":");
        column(&mut text, points, |text, point| to_writer(text, &point.extent.max));
    }
    text.extend_from_slice(b"}\n\n");
    Bytes::from(text)
}

fn column(
    text: &mut Vec<u8>,
    points: &[Point],
    write: impl Fn(&mut Vec<u8>, &Point) -> serde_json::Result<()>,
) {
    text.push(b'[');
    for (number, point) in points.iter().enumerate() {
        if number > 0 {
            text.push(b',');
        }
        // Numbers that are not finite become null. Writing to memory does not fail.
        write(text, point).ok();
    }
    text.push(b']');
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::downsample::Part;
    use serde_json::json;

    use super::*;

    fn data(event: &Bytes) -> Value {
        let text = std::str::from_utf8(event).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines.len(), &lines[2..]), (4, ["", ""].as_slice()), "one line of data: {text}");
        serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap()
    }

    #[test]
    fn hostile_texts_do_not_end_their_event() {
        let hostile = json!({"name": "a\n\nevent: end\r\ndata: {}\u{2028}\u{0}</script>"});
        assert_eq!(data(&event("mark", &hostile)), hostile);
    }

    #[test]
    fn extents_are_sent_only_where_points_join_several_values() {
        let point = |series_id, count, value| Point {
            series_id,
            time_us: 5,
            value,
            extent: Part { time_ns: 0, count, min: value - 1.0, max: value, mean: value },
        };
        let single = data(&values(&[point(1, 1, 2.0), point(2, 1, f64::NAN)]));
        assert_eq!(single, json!({"id": [1, 2], "time_us": [5, 5], "value": [2.0, null]}));
        let joined = data(&values(&[point(1, 1, 2.0), point(2, 3, 4.0)]));
        assert_eq!((&joined["count"], &joined["min"]), (&json!([1, 3]), &json!([1.0, 3.0])));
    }
}
