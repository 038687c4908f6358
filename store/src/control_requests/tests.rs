//! Tests of the tables on SQLite. Those with several collectors are in the tests of the collector.

use polymeter_proto::series::SessionId;

use super::*;
use crate::removal::requests;
use crate::sqlite;

const NOW_US: i64 = 1_790_000_000_000_000;

fn table() -> (tempfile::TempDir, ControlTable) {
    let (directory, connection) = sqlite::new_store();
    (directory, ControlTable { connection })
}

fn wanted(session: u64, node: &str) -> AnsweringSession {
    AnsweringSession { session: SessionId(session), node: node.to_owned() }
}

fn new(id: &str, is_lasting: bool, expires_us: i64) -> NewControlRequest {
    NewControlRequest {
        request_id: id.to_owned(),
        request: ControlRequest {
            collector_id: "a".to_owned(),
            job_id: "7".to_owned(),
            uid: 1000,
            line: format!("line {id}"),
            is_lasting,
            at_us: NOW_US + 1000,
            expires_us: NOW_US + expires_us,
        },
        wanted: Vec::new(),
    }
}

fn nothing(_: &[StoredControlRequest]) -> Replaced {
    Replaced::default()
}

fn lines(requests: Vec<StoredControlRequest>) -> Vec<String> {
    requests.into_iter().map(|stored| stored.request.line).collect()
}

#[test]
fn requests_of_a_job_take_effect_in_their_order() {
    let (_directory, mut table) = table();
    let first = table.take(&new("1", true, 100), NOW_US, nothing).unwrap();
    let again = table.take(&new("1", true, 100), NOW_US, nothing).unwrap();
    assert_eq!(first, again, "it is stored once");
    let second = table.take(&new("2", true, 100), NOW_US, nothing).unwrap();
    assert!(second.number > first.number && second.at_us > first.at_us);
    let immediate = table.take(&new("3", false, 100), NOW_US, nothing).unwrap();
    assert_eq!(immediate.at_us, NOW_US + 1000, "no effect lasts, and the order does not matter");
    assert_eq!(lines(table.after(0, NOW_US).unwrap()), ["line 1", "line 2", "line 3"]);
    assert_eq!(lines(table.after(first.number, NOW_US).unwrap()), ["line 2", "line 3"]);
    assert_eq!(lines(table.after(0, NOW_US + 100).unwrap()), [""; 0]);
}

#[test]
fn a_replaced_request_is_not_sent_and_lends_its_end() {
    let (_directory, mut table) = table();
    let first = table.take(&new("1", true, 500), NOW_US, nothing).unwrap();
    let replaced = table.take(&new("2", true, 10), NOW_US, |earlier| Replaced {
        numbers: earlier.iter().map(|earlier| earlier.number).collect(),
        until_us: earlier.iter().map(|earlier| earlier.request.expires_us).max(),
    });
    replaced.unwrap();
    assert_eq!(lines(table.unanswered("7", SessionId(1), NOW_US + 100).unwrap()), ["line 2"]);
    assert_eq!(lines(table.unanswered("8", SessionId(1), NOW_US).unwrap()), [""; 0]);
    // The user of the first one still waits for its answers.
    let given = answered(1, Some("{}"), true);
    table.answer(first.number, std::slice::from_ref(&given), None, NOW_US).unwrap();
    assert_eq!(table.answers(first.number).unwrap(), [given]);
}

fn answered(session: u64, text: Option<&str>, is_final: bool) -> AnswerRow {
    AnswerRow {
        session: SessionId(session),
        node: format!("n{session}"),
        answer: text.map(str::to_owned),
        is_final,
    }
}

#[test]
fn a_session_receives_a_request_until_its_final_answer() {
    let (_directory, mut table) = table();
    let taken = table.take(&new("1", true, 100), NOW_US, nothing).unwrap();
    let unanswered = |table: &mut ControlTable, session, at_us| {
        table.unanswered("7", SessionId(session), NOW_US + at_us).unwrap().len()
    };
    table
        .answer(taken.number, &[answered(1, None, true), answered(2, Some("busy"), false)], None, NOW_US)
        .unwrap();
    assert_eq!([1, 2, 3].map(|session| unanswered(&mut table, session, 0)), [0, 1, 1]);
    table.answer(taken.number, &[answered(2, None, true)], Some(NOW_US + 300), NOW_US).unwrap();
    assert_eq!(
        [1, 2, 3].map(|session| unanswered(&mut table, session, 200)),
        [0, 0, 1],
        "the lease lasts longer"
    );
    table.settle(taken.number, Some(NOW_US + 150)).unwrap();
    assert_eq!(unanswered(&mut table, 3, 200), 0);
    assert_eq!(table.answers(taken.number).unwrap(), []);
    table.remove(taken.number).unwrap();
    table.answer(taken.number, &[answered(3, None, true)], None, NOW_US).unwrap();
    assert_eq!(unanswered(&mut table, 3, 0), 0, "answers to a request that is gone are dropped");
}

#[test]
fn one_collector_forwards_a_request_without_a_lasting_effect() {
    let (_directory, mut table) = table();
    let request =
        NewControlRequest { wanted: vec![wanted(1, "n1"), wanted(2, "n2")], ..new("1", false, 100) };
    let number = table.take(&request, NOW_US, nothing).unwrap().number;
    let sessions = [wanted(2, "n2"), wanted(3, "n3")];
    assert_eq!(table.claim(number, &sessions, "b", false).unwrap(), [SessionId(2)]);
    assert_eq!(table.claim(number, &sessions, "c", false).unwrap(), []);
    let lasting = table.take(&new("2", true, 100), NOW_US, nothing).unwrap().number;
    table.answer(lasting, &[answered(2, Some("{}"), true)], None, NOW_US).unwrap();
    assert_eq!(table.claim(lasting, &sessions, "b", true).unwrap(), [SessionId(3)]);
    assert_eq!(table.claim(lasting, &sessions, "c", true).unwrap(), [SessionId(3)], "it can be repeated");
}

#[test]
fn the_table_is_bounded() {
    let (_directory, mut table) = table();
    for number in 0..6 {
        table.take(&new(&number.to_string(), true, 1000 + number), NOW_US, nothing).unwrap();
    }
    let connection = &mut *table.connection;
    requests::bound(connection, NOW_US, 4, u64::MAX).unwrap();
    assert_eq!(lines(table.after(0, NOW_US).unwrap()), ["line 2", "line 3", "line 4", "line 5"]);
    requests::bound(&mut *table.connection, NOW_US, 4, 2 * "line 5".len() as u64).unwrap();
    assert_eq!(lines(table.after(0, NOW_US).unwrap()), ["line 4", "line 5"]);
}

#[test]
fn a_collector_knows_of_others_until_they_leave() {
    let (_directory, mut table) = table();
    let collector = |id: &str| CollectorRow {
        collector_id: id.to_owned(),
        host: "h".to_owned(),
        version: "1".to_owned(),
    };
    assert!(!table.beat(&collector("a")).unwrap());
    assert!(table.beat(&collector("b")).unwrap());
    assert!(table.beat(&collector("a")).unwrap());
    table.leave("b").unwrap();
    assert!(!table.beat(&collector("a")).unwrap());
    assert_eq!(table.job_nodes("7", true).unwrap(), []);
}
