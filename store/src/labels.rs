//! Labels as JSON. Pure.

use polymeter_proto::series::Labels;

/// Formats labels as a JSON object with sorted keys.
pub fn labels_json(labels: &Labels) -> String {
    let object: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    serde_json::Value::Object(object).to_string()
}

/// Parses a JSON object of texts as labels. Other text yields no labels: only this program writes the column.
pub(crate) fn parse_labels(json: &str) -> Labels {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let pairs = object.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    Labels::new(pairs.collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_canonical_json() {
        let pairs = [("node", "1"), ("cpu", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = Labels::new(pairs.to_vec()).unwrap();
        assert_eq!(labels_json(&labels), r#"{"cpu":"3","node":"1"}"#);
        assert_eq!(parse_labels(&labels_json(&labels)), labels);
        assert_eq!(labels_json(&Labels::default()), "{}");
        assert_eq!(parse_labels("none"), Labels::default());
    }
}
