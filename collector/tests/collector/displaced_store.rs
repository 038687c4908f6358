//! Tests of a store whose file is deleted, moved, replaced or truncated while the collector runs: nothing is
//! acknowledged that is not in the file at the path, and lost data are recorded.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us};
use polymeter_proto::wire::message::ToAgent;
use polymeter_store::reader::Reader;
use rusqlite::Connection;

polymeter_test_harness::tests![
    a_deleted_store_is_created_again,
    log_of_a_deleted_database_is_removed,
    a_moved_store_keeps_acknowledged_frames,
    continues_with_an_older_copy,
    notices_missing_frames_in_the_same_file,
    a_deleted_log_loses_nothing,
    a_truncated_log_is_not_written,
    an_emptied_database_is_created_again,
    a_truncated_store_is_not_written,
    a_new_store_is_private,
    vacuum_and_checkpoint_by_another_program_lose_nothing
];

const FRAMES: i64 = 5;
const SAMPLES: i64 = 3;

fn path(environment: &TestEnvironment) -> PathBuf {
    environment.url().file().expect("a file").to_owned()
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, (), |row| row.get(0)).unwrap()
}

/// Waits until all frames are acknowledged.
fn send(agent: &mut Agent, begin_us: i64, seeds: std::ops::Range<i64>) {
    let shape = shape(1, Some(&job(1, "4711", begin_us)));
    let first = seeds.start;
    for seed in seeds {
        let sequence = agent.frame(&[(&shape, begin_us + seed * 1000, &values(seed).0)], &[], &[]);
        agent.send(sequence);
    }
    println!("frames from {first} on");
    agent.wait_until_acknowledged();
}

/// Stores frames, damages the store with `fault`, and stores more. Returns the environment and the number of
/// samples of the first half that are at the path afterwards. All samples of the second half must be there.
fn damage_between_frames(fault: impl FnOnce(&Path)) -> (TestEnvironment, i64) {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let (path, begin_us) = (path(&environment), now_us());
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 5);
    send(&mut agent, begin_us, 0..FRAMES);
    fault(&path);
    send(&mut agent, begin_us, FRAMES..2 * FRAMES);
    collector.stop().unwrap();
    // The samples at the path have the right series and jobs: no row has an id of a store that is gone.
    let joined = "SELECT count(*) FROM samples JOIN series USING (series_id) JOIN job USING (job_key)
        WHERE node = 'n1' AND job.job_id = '4711'";
    assert_eq!(number(&path, joined), number(&path, "SELECT count(*) FROM samples"));
    let before = format!("SELECT count(*) FROM samples WHERE time < {}", (begin_us + FRAMES * 1000) * 1000);
    let (all, first) = (number(&path, "SELECT count(*) FROM samples"), number(&path, &before));
    assert_eq!(all - first, FRAMES * SAMPLES, "what was acknowledged after the fault is stored");
    let mut reader = Reader::open(&environment.url()).unwrap();
    let losses = reader.last_losses(u32::MAX).unwrap();
    let is_recorded = losses.iter().any(|loss| loss.reason == "store_replaced" && loss.node == "n1");
    assert_eq!(is_recorded, first < FRAMES * SAMPLES, "{first} of the first samples are there: {losses:?}");
    drop(reader);
    (environment, first)
}

fn a_deleted_store_is_created_again() {
    let (environment, first) = damage_between_frames(|path| {
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(suffixed(path, suffix)).unwrap();
        }
    });
    assert_eq!(first, 0);
    let mode = fs::metadata(path(&environment)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn log_of_a_deleted_database_is_removed() {
    let (_environment, first) = damage_between_frames(|path| fs::remove_file(path).unwrap());
    assert_eq!(first, 0);
}

fn a_moved_store_keeps_acknowledged_frames() {
    let (environment, first) =
        damage_between_frames(|path| fs::rename(path, suffixed(path, ".moved")).unwrap());
    assert_eq!(first, 0);
    let moved = suffixed(&path(&environment), ".moved");
    assert!(number(&moved, "SELECT count(*) FROM samples") >= FRAMES * SAMPLES);
    let check = "SELECT integrity_check = 'ok' FROM pragma_integrity_check";
    assert_eq!(number(&moved, check), 1);
}

fn continues_with_an_older_copy() {
    let (_environment, first) = damage_between_frames(|path| {
        let copy = suffixed(path, ".copy");
        // A copy of the state before the last frame, in one file.
        Connection::open(path).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        let connection = Connection::open(&copy).unwrap();
        connection.execute_batch("DELETE FROM samples; UPDATE session SET last_sequence = 0").unwrap();
        drop(connection);
        fs::rename(copy, path).unwrap();
    });
    assert_eq!(first, 0);
}

fn notices_missing_frames_in_the_same_file() {
    let (_environment, first) = damage_between_frames(|path| {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("DELETE FROM samples; UPDATE session SET last_sequence = 2").unwrap();
    });
    assert_eq!(first, 0);
}

fn a_deleted_log_loses_nothing() {
    let (_environment, first) = damage_between_frames(|path| {
        fs::remove_file(suffixed(path, "-wal")).unwrap();
    });
    assert_eq!(first, FRAMES * SAMPLES);
}

fn a_truncated_log_is_not_written() {
    damage_between_frames(|path| truncate(&suffixed(path, "-wal"), 0));
    damage_between_frames(|path| {
        let log = suffixed(path, "-wal");
        let bytes = fs::metadata(&log).unwrap().len();
        truncate(&log, bytes / 2);
    });
}

fn an_emptied_database_is_created_again() {
    let (_environment, first) = damage_between_frames(|path| {
        checkpoint(path);
        truncate(path, 0);
    });
    assert_eq!(first, 0);
    // All missing data are still in the log.
    let (_environment, first) = damage_between_frames(|path| truncate(path, 0));
    assert_eq!(first, FRAMES * SAMPLES);
}

fn a_truncated_store_is_not_written() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let (path, begin_us) = (path(&environment), now_us());
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 5);
    send(&mut agent, begin_us, 0..FRAMES);
    checkpoint(&path);
    let bytes = fs::metadata(&path).unwrap().len();
    truncate(&path, bytes / 2);
    let sequence = agent.frame(&[(&shape(1, None), begin_us, &values(1).0)], &[], &[]);
    for _ in 0..10 {
        agent.send(sequence);
        let answer = agent.receive(200);
        assert!(!matches!(answer, Some(ToAgent::Ack { through, .. }) if through == sequence), "{answer:?}");
    }
    // After the damaged file is moved away, a new store is created.
    fs::rename(&path, suffixed(&path, ".broken")).unwrap();
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_eq!(number(&path, "SELECT count(*) FROM samples"), SAMPLES);
}

fn checkpoint(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
}

fn a_new_store_is_private() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let path = path(&environment);
    let mode = |suffix: &str| fs::metadata(suffixed(&path, suffix)).unwrap().permissions().mode() & 0o777;
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 5);
    send(&mut agent, now_us(), 0..FRAMES);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(suffix), 0o600, "{suffix}");
    }
    collector.stop().unwrap();
    // A changed mode is kept from then on.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let collector = environment.collector();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(suffix), 0o640, "{suffix}");
    }
    collector.stop().unwrap();
}

fn truncate(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn vacuum_and_checkpoint_by_another_program_lose_nothing() {
    let (_environment, first) = damage_between_frames(|path| {
        Connection::open(path).unwrap().execute_batch("VACUUM").unwrap();
        checkpoint(path);
    });
    assert_eq!(first, FRAMES * SAMPLES);
}
