//! Data of the charts in the page.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use polymeter_analysis::charts::{Charts, pack};

use crate::output::printable::printable;

pub(super) fn printable_charts(mut charts: Charts) -> Charts {
    let make = |name: &mut String| *name = printable(name).into_owned();
    for row in &mut charts.rows {
        make(&mut row.first);
        make(&mut row.last);
    }
    for chart in &mut charts.charts {
        make(&mut chart.id);
        make(&mut chart.title);
        make(&mut chart.unit);
        chart.metrics.iter_mut().for_each(make);
    }
    charts.bands.iter_mut().for_each(|band| make(&mut band.name));
    charts.marks.iter_mut().for_each(|mark| make(&mut mark.name));
    charts
}

/// Elements with the data: a JSON object, and values, which are compressed (zlib) and encoded in Base64.
pub(super) fn scripts(charts: &Charts) -> String {
    let packed = pack(charts);
    let json = serde_json::to_string(&packed.charts).unwrap_or_else(|_| "null".to_owned());
    let values = STANDARD.encode(compressed(&packed.values));
    format!(
        "<script type=\"application/json\" id=\"charts-data\">{}</script>\n\
         <script type=\"text/plain\" id=\"charts-values\">{values}</script>\n",
        escaped(&json)
    )
}

/// Escapes JSON for an element of HTML. Its strings keep their values.
pub(super) fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail; without values the page says that it cannot show the charts.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_does_not_end_its_element() {
        let json = serde_json::json!({"</script><!--<script>": "&amp;"}).to_string();
        let safe = escaped(&json);
        assert!(!safe.contains(['<', '>', '&']), "{safe}");
        let (one, other): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&json).unwrap(), serde_json::from_str(&safe).unwrap());
        assert_eq!(one, other);
    }
}
