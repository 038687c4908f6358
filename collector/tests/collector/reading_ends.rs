//! Tests of the ends of sessions of reading: clients that send nothing, read nothing, take too long, or are
//! killed. Each leaves neither a session nor a thread nor a connection to the database.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polymeter_collector::limits::ReadTimeouts;
use polymeter_proto::control::ReadRequest;
use polymeter_proto::read::{Frame, Query};

use crate::support::reading::{ReadClient, connect_as};
use crate::support::{TestEnvironment, wait_until};

use crate::reading::{Fixture, USERS, endless};

scenarios! { exclusive
    a_client_that_sends_nothing_is_disconnected,
    a_client_that_reads_nothing_is_disconnected,
    a_query_that_takes_too_long_is_cancelled,
    a_killed_client_leaves_nothing,
}

const SHORT: Duration = Duration::from_millis(300);

/// Waits until no session, no thread of one, and no statement of one is left.
fn wait_until_nothing_is_left(environment: &TestEnvironment, fixture: &Fixture) {
    for uid in [USERS[0], 0] {
        wait_until("the sessions are free", || fixture.has_free_sessions(uid));
    }
    wait_until("the threads have ended", || threads() == 0);
    if environment.server.is_some() {
        let statements = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
             AND application_name = 'polymeter' AND query LIKE 'COPY%samples%ORDER%'";
        wait_until("the connections to the database are closed", || environment.number(statements) == 0);
    }
}

/// Counts the threads of sessions in this process, which contains the collector.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "reader").count()
}

/// Returns the length of the rest of an answer, which the collector ends.
fn rest(mut client: ReadClient) -> usize {
    let mut rest = Vec::new();
    // A connection that was closed with unread data is reset.
    client.stream.read_to_end(&mut rest).ok();
    rest.len()
}

fn a_client_that_sends_nothing_is_disconnected(environment: &mut TestEnvironment) {
    let timeouts = ReadTimeouts { idle: SHORT, ..ReadTimeouts::default() };
    let fixture = Fixture::with_timeouts(environment, timeouts);
    let (silent, mut slow) = (fixture.client(USERS[0]), fixture.client(USERS[0]));
    // The time is for a complete query, not for each of its bytes.
    while slow.stream.get_mut().write_all(b"{").is_ok() {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!((rest(silent), rest(slow)), (0, 0));
    // A session that has not begun yet.
    let mut stream = connect_as(USERS[0], &fixture.socket);
    stream.write_all(ReadRequest::LINE.as_bytes()).unwrap();
    drop(stream);
    wait_until_nothing_is_left(environment, &fixture);
    fixture.collector.stop().unwrap();
}

fn a_client_that_reads_nothing_is_disconnected(environment: &mut TestEnvironment) {
    let fixture =
        Fixture::with_timeouts(environment, ReadTimeouts { stall: SHORT, ..ReadTimeouts::default() });
    let query = endless(&fixture, environment);
    let mut clients = [fixture.client(USERS[0]), fixture.client(USERS[0])];
    for client in &mut clients {
        client.send(&query);
    }
    wait_until_nothing_is_left(environment, &fixture);
    for client in clients {
        let length = rest(client);
        assert!(length > 0 && length < 4_000_000, "the answer was cut: {length} bytes");
    }
    // A client that reads, with pauses, gets everything.
    let mut patient = fixture.client(USERS[0]);
    patient.send(&query);
    let mut rows = 0;
    while let Some((Frame::Rows(block), _)) = patient.frame() {
        rows += block.len();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(rows > 390_000, "{rows}");
    drop(patient);
    fixture.collector.stop().unwrap();
}

fn a_query_that_takes_too_long_is_cancelled(environment: &mut TestEnvironment) {
    let timeouts = ReadTimeouts { query: SHORT, ..ReadTimeouts::default() };
    let fixture = Fixture::with_timeouts(environment, timeouts);
    let query = endless(&fixture, environment);
    let mut client = fixture.client(USERS[0]);
    client.send(&query);
    // It reads on, more slowly than the rows could arrive.
    let mut rows = 0;
    while let Some((Frame::Rows(block), _)) = client.frame() {
        rows += block.len();
        std::thread::park_timeout(Duration::from_millis(200));
    }
    assert!(rows < 390_000, "the answer was cut: {rows}");
    drop(client);
    wait_until_nothing_is_left(environment, &fixture);
    // Short queries of other sessions are answered.
    let filter = polymeter_proto::read::JobFilter { limit: 1, ..Default::default() };
    assert_eq!(fixture.client(USERS[0]).ask(&Query::Jobs(Box::new(filter))).0.len(), 1);
    fixture.collector.stop().unwrap();
}

/// Starts a process that reads the first rows of a query, and then waits.
fn start_client(fixture: &Fixture, query: &Query) -> Child {
    let script = "
import socket, sys, time
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(sys.argv[2].encode() + b'\\n' + sys.argv[3].encode())
received = 0
while received < 100000:
    received += len(stream.recv(65536))
print('reads', flush=True)
time.sleep(1000)
";
    let query = String::from_utf8(query.to_line()).unwrap();
    let mut client = Command::new("python3");
    client.args(["-c", script]).arg(&fixture.socket).args([ReadRequest::LINE, &query]);
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    client.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"reads\n");
    client
}

fn a_killed_client_leaves_nothing(environment: &mut TestEnvironment) {
    let fixture = Fixture::with_timeouts(environment, ReadTimeouts::default());
    let query = endless(&fixture, environment);
    for _ in 0..3 {
        // As many as one user may have.
        let mut clients = [start_client(&fixture, &query), start_client(&fixture, &query)];
        assert!(threads() >= clients.len(), "{}", threads());
        for client in &mut clients {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        wait_until_nothing_is_left(environment, &fixture);
    }
    fixture.collector.stop().unwrap();
}
