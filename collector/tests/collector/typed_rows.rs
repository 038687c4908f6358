//! Fields of another type than the program expects, with every kind of store: each is an error that names the
//! column, and never counts as 0 or as an empty text.

use std::error::Error;

use polymeter_store::TokenTable;

use crate::support::{Kind, TestEnvironment};

scenarios! {
    a_field_of_another_type_is_an_error_that_names_the_column,
}

fn a_field_of_another_type_is_an_error_that_names_the_column(environment: &mut TestEnvironment) {
    environment.collector().stop().unwrap();
    let time = if environment.kind == Kind::Sqlite { "0" } else { "to_timestamp(0)" };
    let mut read = |scope: &str, expires: &str| {
        environment.execute(&format!(
            "DROP TABLE api_token;
             CREATE TABLE api_token AS SELECT 'id' AS token_id, 'digest' AS digest, 1 AS uid, NULL AS name,
                 {scope}, {time} AS created, {expires} AS expires, {time} AS used"
        ));
        let tokens = TokenTable::open(&environment.url()).unwrap().list(None);
        tokens.map_err(|error| {
            let causes = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
            causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
        })
    };
    let tokens = read("'read' AS scope", time).unwrap();
    let [token] = &tokens[..] else { panic!("{tokens:?}") };
    assert_eq!((token.uid, token.name.as_deref(), &*token.scope), (1, None, "read"));
    assert_eq!((token.created_us, token.used_us), (0, Some(0)));

    for (scope, expires, expected) in [
        ("7 AS scope", time, "column 5 (scope) is an integer where text is expected"),
        ("CAST(NULL AS text) AS scope", time, "column 5 (scope) is NULL where text is expected"),
        ("'read' AS scope", "'soon'", "column 7 (expires) is text where a time is expected"),
    ] {
        assert_eq!(read(scope, expires).unwrap_err(), format!("cannot read tokens: {expected}"));
    }
    let missing = read("'read' AS other", time).unwrap_err();
    assert!(missing.contains("scope"), "{missing}");
}
