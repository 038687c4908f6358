//! Tests of the view of the energy of jobs: the rights of users. That its figures equal those of the report
//! is tested in `energy.rs` and `energy_sources.rs`.

use crate::postgres::server;
use crate::sql_roles::store_of_users;
use crate::support::Kind;
use crate::support::sql::{assert_refused, assert_result};

polymeter_test_harness::tests![
    energy_in_sql_on_postgresql,
    energy_in_sql_on_timescaledb,
    energy_in_sql_on_citus
];

fn energy_in_sql_on_postgresql() {
    assert_energy(Kind::Postgres);
}

fn energy_in_sql_on_timescaledb() {
    assert_energy(Kind::Timescale);
}

fn energy_in_sql_on_citus() {
    assert_energy(Kind::Citus);
}

/// Adds the energy of jobs by two sources, of which one counts. Job 40 goes on, and has that of an earlier
/// end; nobody has summarised the end of `unowned`.
const ENERGY: &str = "
    INSERT INTO job_usage (job_key, ended, elapsed_s)
    SELECT job_key, ended, CASE WHEN job_id <> 'unowned' THEN 3600 END FROM job WHERE job_key > 40;
    INSERT INTO job_energy
    SELECT job_key, 'n2', 'node', source, devices, joules, 10, 0.5, is_counted, false FROM job,
        (VALUES ('power', 'secret-meter', 500, true), ('node.ipmi.power', NULL, 480, false)) AS row (source, devices, joules, is_counted)
    WHERE job_key > 40;
    UPDATE job SET ended = NULL WHERE job_id = '41';
    ANALYZE;";

fn assert_energy(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    server.query(ENERGY);
    let is = |user: &str, condition: &str, expected: &str| {
        let rows = format!(
            "SELECT job_id, node, part, source, devices, joules, error_joules, delay_s, is_counted, method FROM energy_by_job
             WHERE {condition} ORDER BY 1, joules DESC"
        );
        assert_result(server, user, &rows, expected);
    };
    let of = |job: &str| {
        format!(
            "{job}|n2|node|power|secret-meter|500|10|0.5|t|measured\n{job}|n2|node|node.ipmi.power||480|10|0.5|f|measured"
        )
    };
    for (user, jobs) in [
        ("alice", &["42_7"][..]),
        ("eric", &["42_7"]),
        ("bob", &["hidden"]),
        ("dora", &["hidden"]),
        ("grafana", &["42_7", "hidden"]),
        ("postgres", &["42_7", "hidden"]),
        ("carol", &[]),
    ] {
        let expected: Vec<String> = jobs.iter().map(|job| of(job)).collect();
        is(user, "true", &expected.join("\n"));
    }
    is("alice", "job_id = 'hidden'", "");
    assert_refused(server, "alice", "SELECT * FROM job_energy", "permission denied");
    assert_refused(server, "stranger", "SELECT * FROM energy_by_job", "permission denied");
}
