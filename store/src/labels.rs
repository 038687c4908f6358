//! Labels as JSON. Pure.

use std::collections::BTreeMap;

use polymeter_proto::series::Labels;

pub fn labels_json(labels: &Labels) -> String {
    let object: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    serde_json::Value::Object(object).to_string()
}

/// Parses a JSON object of texts; none for other text.
pub(crate) fn parse_labels(json: &str) -> Option<Labels> {
    let object: BTreeMap<String, String> = serde_json::from_str(json).ok()?;
    Labels::new(object.into_iter().collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_canonical_json() {
        let pairs = [("node", "1"), ("cpu", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = Labels::new(pairs.to_vec()).unwrap();
        assert_eq!(labels_json(&labels), r#"{"cpu":"3","node":"1"}"#);
        assert_eq!(parse_labels(&labels_json(&labels)), Some(labels));
        assert_eq!(labels_json(&Labels::default()), "{}");
        assert_eq!(parse_labels("{}"), Some(Labels::default()));
        assert_eq!(["none", "[]", r#"{"cpu":3}"#].map(parse_labels), [None, None, None]);
    }
}
