//! Rules of a site: they are valid and apply to any facts, or all their faults have a line.

use std::path::Path;

use polymeter_analysis::advice::Advice;
use polymeter_analysis::advice::facts::{FACTS, FactScope, Facts};
use polymeter_analysis::advice::template::Template;
use polymeter_analysis::expression::{Expression, Value};

pub fn body(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Every second fact is known; numbers come from the input.
    let mut facts = Facts::default();
    for (fact, byte) in FACTS.iter().zip(data.iter().cycle()).filter(|(_, byte)| **byte % 2 == 0) {
        let value = [
            Value::Number(f64::from(*byte) - 100.0),
            Value::Truth(true),
            Value::Text("COMPLETED".to_owned()),
        ];
        value.into_iter().any(|value| facts.set(fact.name, Some(value)));
    }
    match Expression::parse(text, &FactScope) {
        Ok(expression) => {
            if let Some(Value::Number(number)) = expression.evaluate(&facts) {
                assert!(number.is_finite());
            }
        }
        Err(error) => assert!(error.position <= text.len() && !error.message.is_empty()),
    }
    if let Ok(template) = Template::parse(text, &FactScope) {
        template.text(&facts);
    }
    let (advice, faults) = Advice::with_file(Path::new("a"), text);
    assert!(faults.0.iter().all(|fault| fault.place.starts_with("a:")));
    advice.findings(&facts);
}
