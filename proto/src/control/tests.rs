use proptest::prelude::*;

use super::*;

fn fault(line: &str) -> (String, Option<String>) {
    let refusal = Request::parse(line.as_bytes()).unwrap_err();
    (refusal.code, refusal.field)
}

#[test]
fn parses_every_example_and_writes_it_back() {
    for verb in VERBS {
        let request = Request::parse(verb.example.as_bytes()).unwrap();
        assert_eq!(request.info(), *verb, "{}", verb.name);
        let written = serde_json::to_value(&request).unwrap();
        let example: serde_json::Value = serde_json::from_str(verb.example).unwrap();
        assert_eq!(written["verb"], verb.name);
        assert_eq!(Request::parse(written.to_string().as_bytes()).unwrap(), request);
        for (field, value) in example.as_object().unwrap() {
            assert_eq!(&written[field], value, "{} {field}", verb.name);
        }
    }
}

#[test]
fn refuses_lines_that_are_no_objects() {
    for line in ["hello", "[]", "\"status\"", "{\"verb\":\"status\"", ""] {
        assert_eq!(fault(line), ("malformed".to_owned(), None), "{line}");
    }
    assert_eq!(Request::parse(b"\xff").unwrap_err().code, "malformed");
    let null = Request::parse(b"{\"verb\":\"plan\",\"job\":null}");
    assert_eq!(null, Ok(Request::Plan(PlanRequest { job: None })), "null is the same as no field");
}

#[test]
fn refusals_name_the_field() {
    for (line, field) in [
        ("{}", "verb"),
        ("{\"verb\":7}", "verb"),
        ("{\"verb\":\"dance\"}", "verb"),
        ("{\"verb\":\"status\",\"jb\":1}", "jb"),
        ("{\"verb\":\"plan\",\"job\":4242}", "job"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":[]}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":10}}", "plan"),
        ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"10ms\"},\"for\":600}", "for"),
        ("{\"verb\":\"unregister\"}", "job"),
        ("{\"verb\":\"mark\",\"job\":\"1\"}", "name"),
        ("{\"verb\":\"push\",\"metric\":\"loss\"}", "value"),
        ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":\"1\"}", "value"),
        ("{\"verb\":\"watch\",\"metrics\":\"cpu.*\"}", "metrics"),
        ("{\"verb\":\"register\",\"cgroups\":[]}", "job"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"uid\":-1}", "uid"),
        ("{\"verb\":\"register\",\"job\":\"1\",\"uid\":1e99}", "uid"),
        ("{\"verb\":\"start\",\"job\":\"1\",\"cores\":1.5}", "cores"),
    ] {
        assert_eq!(fault(line), ("invalid".to_owned(), Some(field.to_owned())), "{line}");
    }
    let many: serde_json::Map<_, _> = (0..2000).map(|number| (format!("m{number}"), "1s".into())).collect();
    let line = serde_json::json!({"verb": "set", "plan": many}).to_string();
    assert_eq!(fault(&line), ("invalid".to_owned(), Some("plan".to_owned())));
}

#[test]
fn refusals_suggest_the_nearest_name() {
    let message = |line: &[u8]| Request::parse(line).unwrap_err().message.to_string();
    assert_eq!(message(br#"{"verb":"stauts"}"#), "unknown verb `stauts`; did you mean `status`?");
    assert!(
        message(br#"{"verb":"xyzzy"}"#).starts_with("unknown verb `xyzzy`; the verbs are: status, jobs, ")
    );
    assert_eq!(message(br#"{"verb":"plan","jbo":"1"}"#), "unknown field; did you mean `job`?");
    assert_eq!(message(br#"{"verb":"flush","qqq":"1"}"#), "unknown field; this verb takes no fields");
    assert_eq!(message(br#"{"verb":"mark","zzz":"1"}"#), "unknown field; the fields are: job, name, kind");
    assert_eq!(
        message(br#"{"verb":"unregister"}"#),
        r#"missing field; example: {"verb":"unregister","job":"4242"}"#
    );
    assert_eq!(message(br#"{"verb":"plan","job":7}"#), "invalid type: integer `7`, expected a string");
}

#[test]
fn the_reference_has_the_table_of_verbs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/control.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- table of verbs: begin -->\n", "<!-- table of verbs: end -->");
    let old = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).unwrap().0;
    if std::env::var_os("POLYMETER_BLESS").is_some() {
        std::fs::write(
            path,
            text.replace(&format!("{begin}{old}{end}"), &format!("{begin}{}{end}", verb_table())),
        )
        .unwrap();
        return;
    }
    assert_eq!(old, verb_table(), "docs/reference/control.md is old: run `make bless`");
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_a_refusal(line in prop::collection::vec(any::<u8>(), 0..200)) {
        Request::parse(&line).ok();
    }
}
