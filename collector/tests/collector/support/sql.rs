//! Statements of users, and their results.

use std::process::Output;

use super::server::Server;

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub(crate) fn query_as(server: &Server, user: &str, sql: &str) -> String {
    result(&server.run_as(user, "postgres", sql), sql)
}

pub(crate) fn query_in(server: &Server, database: &str, sql: &str) -> String {
    result(&server.run_as("postgres", database, sql), sql)
}

pub(crate) fn assert_result(server: &Server, user: &str, sql: &str, expected: &str) {
    assert_eq!(query_as(server, user, sql), expected, "{user}: {sql}");
}

pub(crate) fn assert_refused(server: &Server, user: &str, sql: &str, reason: &str) {
    let output = server.run_as(user, "postgres", sql);
    assert!(!output.status.success() && text(&output).contains(reason), "{user}: {sql}: {}", text(&output));
}

fn result(output: &Output, sql: &str) -> String {
    assert!(output.status.success(), "{sql}: {}", text(output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
