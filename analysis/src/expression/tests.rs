use std::collections::BTreeMap;

use super::*;

struct Names(BTreeMap<&'static str, Option<Value>>);

impl Scope for Names {
    fn type_of(&self, name: &str) -> Option<Type> {
        match name {
            "state" => Some(Type::Text),
            "ended" => Some(Type::Truth),
            _ => self.0.contains_key(name).then_some(Type::Number),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.0.keys().copied().collect()
    }
}

impl Lookup for Names {
    fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned().flatten()
    }

    fn metric(&self, statistic: Statistic, metric: &str) -> Option<f64> {
        (statistic == Statistic::Mean && metric == "gpu.utilization").then_some(0.5)
    }
}

fn names() -> Names {
    let number = |value| Some(Value::Number(value));
    Names(BTreeMap::from([
        ("cores", number(4.0)),
        ("used", number(0.9)),
        ("zero", number(0.0)),
        ("nan", number(f64::NAN)),
        ("gone", None),
        ("state", Some(Value::Text("COMPLETED".to_owned()))),
        ("ended", Some(Value::Truth(true))),
    ]))
}

fn value(text: &str) -> Option<Value> {
    Expression::parse(text, &names()).unwrap_or_else(|error| panic!("{text}: {error}")).evaluate(&names())
}

fn error(text: &str) -> (usize, String) {
    let error = Expression::parse(text, &names()).expect_err(text);
    (error.position, error.message)
}

#[test]
fn arithmetic_and_comparisons_have_their_precedence() {
    assert_eq!(value("1 + 2 * 3 - 4 / 2"), Some(Value::Number(5.0)));
    assert_eq!(value("-(1 - 3) * 2"), Some(Value::Number(4.0)));
    assert_eq!(value("max(min(cores, 3), 2) + ceil(1.2) + floor(1.8)"), Some(Value::Number(6.0)));
    assert_eq!(value("ceil(3.0000000000001)"), Some(Value::Number(3.0)));
    for text in [
        "used < 1 and cores > 1",
        "not used >= 1 and not (cores == 1 or cores == 2)",
        "state == 'COMPLETED' and ended",
        "state != \"TIMEOUT\" and ended == true",
        "used / cores < 65 % and cores * 1 KiB >= 4096 B",
        "2 min == 120 s and 1.5e-1 == 15%",
        "mean('gpu.utilization') == 50 %",
    ] {
        assert_eq!(value(text), Some(Value::Truth(true)), "{text}");
    }
}

#[test]
fn unknown_values_make_no_condition_true() {
    for text in
        ["gone < 1", "not gone < 1", "gone == gone", "gone < 1 or cores < 1", "gone < 1 and cores > 1"]
    {
        assert_eq!(value(text), None, "{text}");
    }
    for text in
        ["1 / zero", "zero / zero", "nan", "nan + 1", "min(gone, 1)", "-gone", "mean('x')", "1e300 * 1e300"]
    {
        assert_eq!(value(text), None, "{text}");
    }
    assert_eq!(value("gone < 1 and cores < 1"), Some(Value::Truth(false)));
    assert_eq!(value("gone < 1 or cores > 1"), Some(Value::Truth(true)));
    assert_eq!(value("known(cores) and not known(gone) and not known(rate('x'))"), Some(Value::Truth(true)));
}

#[test]
fn errors_name_the_position() {
    for (text, position, message) in [
        ("", 0, "expected a number, a text, a name or `(`, found the end"),
        ("cores >", 7, "expected a number, a text, a name or `(`, found the end"),
        ("cores = 1", 6, "unexpected `=`; compare with `==`"),
        ("core > 1", 0, "unknown fact `core`; did you mean `cores`?"),
        ("cores > 1 used", 10, "expected an operator or the end, found `used`"),
        ("cores and ended", 0, "expected a condition, found a number"),
        ("ended + 1", 0, "expected a number, found a condition"),
        ("state < 'x'", 6, "`<` compares numbers, found a text"),
        ("state == 3", 9, "expected a text, found a number"),
        ("(cores > 1", 10, "expected `)`, found the end"),
        ("mean(cores)", 5, "expected the name of a metric in quotes, found `cores`"),
        ("min(1)", 5, "expected `,`, found `)`"),
        ("cores > 'x", 8, "text without end"),
        ("3cores2", 0, "invalid number"),
        ("cores § 1", 6, "unexpected character `§`"),
    ] {
        assert_eq!(error(text), (position, message.to_owned()), "{text}");
    }
    assert!(error("sum(1, 2)").1.starts_with("unknown function `sum`: expected min, max, "));
}

#[test]
fn nesting_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(value(&nested(50)), Some(Value::Number(1.0)));
    assert_eq!(error(&nested(51)), (51, "nested deeper than 50 levels".to_owned()));
    assert!(error(&"not ".repeat(60)).1.starts_with("nested deeper"));
    assert!(
        error(&format!("1{}", "+1".repeat(1000))).1.starts_with("the expression has more than 2000 bytes")
    );
    assert_eq!(value(&format!("1{}", "+1".repeat(999))), Some(Value::Number(1000.0)));
}

#[test]
fn quantities_have_units() {
    for (text, expected) in
        [("64 KiB", 65_536.0), ("65%", 0.65), ("15 min", 900.0), ("2", 2.0), ("90 C", 90.0)]
    {
        assert_eq!(quantity(text), Ok(expected), "{text}");
    }
    for text in ["", "x", "1 parsec", "1 s 2", "-1", "1..2", "1e999"] {
        assert!(quantity(text).is_err(), "{text}");
    }
}

#[test]
fn the_names_of_an_expression_are_listed_once() {
    let expression = Expression::parse("used < cores and used > 0", &names()).unwrap();
    assert_eq!(
        (expression.names(), expression.as_name()),
        (["used".to_owned(), "cores".to_owned()].as_slice(), None)
    );
    assert_eq!(Expression::parse(" cores ", &names()).unwrap().as_name(), Some("cores"));
}
