//! Tests of the administration of the database: roles, writers of other users, and a dump that is restored.

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::{Administration, Keep, Retention, STORE_ROLES, prune};

use crate::postgres::{assert_counts, send_row, server};
use crate::sql_roles::store_of_users;
use crate::support::agent::Agent;
use crate::support::sql::{query_in, text};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    a_writer_stores_samples_on_postgresql,
    a_writer_stores_samples_on_timescaledb,
    a_writer_leaves_maintenance_to_the_owner_on_postgresql,
    a_writer_leaves_maintenance_to_the_owner_on_timescaledb,
    roles_are_created_later_by_an_administrator,
    databases_share_the_roles,
    a_dump_can_be_restored_on_postgresql,
    a_dump_can_be_restored_on_timescaledb
];

fn a_writer_stores_samples_on_postgresql() {
    assert_a_writer_stores_samples(Kind::Postgres);
}

fn a_writer_stores_samples_on_timescaledb() {
    assert_a_writer_stores_samples(Kind::Timescale);
}

fn assert_a_writer_stores_samples(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    environment.collector().stop().unwrap();
    let second = server(&mut environment);
    second.query("CREATE ROLE second LOGIN IN ROLE polymeter_writer");
    let store = second.url().replace("user=postgres", "user=second").parse().unwrap();
    let config = CollectorConfig { store, ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    (0..3).for_each(|seed| send_row(&mut agent, now_us(), seed));
    // The partition of another day is created, too.
    send_row(&mut agent, now_us() - 3 * 86_400 * 1_000_000, 0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 4);
}

fn a_writer_leaves_maintenance_to_the_owner_on_postgresql() {
    assert_a_writer_leaves_maintenance(Kind::Postgres);
}

fn a_writer_leaves_maintenance_to_the_owner_on_timescaledb() {
    assert_a_writer_leaves_maintenance(Kind::Timescale);
}

fn assert_a_writer_leaves_maintenance(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    // The store keeps all at first.
    let config = environment.config();
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, now_us() - 5 * 86_400 * 1_000_000, 0);
    send_row(&mut agent, now_us(), 1);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 2);
    let second = server(&mut environment);
    second.query("CREATE ROLE second LOGIN IN ROLE polymeter_writer");
    second.configure("log_min_messages = error\n");
    second.restart();
    let log = second.socket_directory().join("log");
    let store = second.url().replace("user=postgres", "user=second").parse().unwrap();
    let retention = Retention { samples: Keep::Days(2), ten_seconds: Keep::Days(2), ..Retention::FOREVER };
    let config = CollectorConfig { store, retention: Some(retention), ..config };
    let collector = Collector::start(&config, &environment.context).unwrap();
    // The round of the maintenance writes the policy, and ends.
    let policy = "SELECT count(*) FROM retention WHERE keep_days = 2";
    let maintained = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    wait_until("a round has ended", || {
        environment.number(policy) == 2 && environment.number(maintained) == 0
    });
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 2);
    let errors = std::fs::read_to_string(log).unwrap();
    assert!(!errors.contains("must be owner") && !errors.contains("permission denied"), "{errors}");
    let error = prune(&config.store, None, |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("does not own the tables"), "{error}");
    // A member of the owner's role may do all that the owner may.
    environment.execute("GRANT postgres TO second");
    let collector = Collector::start(&config, &environment.context).unwrap();
    wait_until("old samples are removed", || environment.number("SELECT count(*) FROM samples") == 3);
    collector.stop().unwrap();
    assert_eq!(environment.number("SELECT CAST(sum(count) AS bigint) FROM samples_1h"), 6);
}

fn roles_are_created_later_by_an_administrator() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let administrator = server(&mut environment);
    administrator.query("CREATE ROLE plain LOGIN");
    administrator.query("CREATE DATABASE plain OWNER plain");
    let url = administrator.url().replace("user=postgres dbname=postgres", "user=plain dbname=plain");
    let config = CollectorConfig { store: url.parse().unwrap(), ..environment.config() };
    Collector::start(&config, &environment.context).unwrap().stop().unwrap();
    let administrator = server(&mut environment);
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'polymeter\\_%'";
    assert_eq!(administrator.query(roles), "0");
    let run = |sql: &str| query_in(administrator, "plain", sql);
    let missing = || Administration::open(&config.store).unwrap().missing_roles().unwrap();
    assert_eq!(missing(), STORE_ROLES);
    // Roles alone have no rights, as those that setup creates for a store that is older.
    run("CREATE ROLE polymeter_reader");
    assert_eq!(missing(), STORE_ROLES);
    assert_eq!(run("SELECT polymeter_create_roles()"), "{}");
    assert_eq!(missing(), [""; 0]);
    assert_eq!(run("SELECT polymeter_create_roles()"), "{}", "it can be repeated");
    assert_eq!(run(roles), "3");
    assert_eq!(run("SET ROLE polymeter_user; SELECT count(*) FROM jobs"), "0");
    assert_eq!(run("SET ROLE polymeter_reader; SELECT count(*) FROM samples"), "0");
    assert_eq!(run("SHOW jit"), "off");
}

fn databases_share_the_roles() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let names = ["one", "two", "three"];
    let server = server(&mut environment);
    for name in names {
        server.query(&format!("CREATE DATABASE {name}"));
    }
    let urls = names.map(|name| server.url().replace("dbname=postgres", &format!("dbname={name}")));
    let config = environment.config();
    let context = &environment.context;
    // Three collectors create three stores, and the same roles, at the same time.
    std::thread::scope(|scope| {
        let starts = urls.each_ref().map(|url| {
            let listen = format!("inproc://{}", url.rsplit('=').next().unwrap());
            let config = CollectorConfig { store: url.parse().unwrap(), listen, ..config.clone() };
            scope.spawn(move || Collector::start(&config, context).map(|collector| collector.stop().unwrap()))
        });
        for start in starts {
            start.join().unwrap().unwrap();
        }
    });
    let server = environment.server.as_ref().unwrap();
    for name in names {
        assert_eq!(
            query_in(server, name, "SET ROLE polymeter_user; SELECT count(*) FROM jobs"),
            "0",
            "{name}"
        );
    }
}

fn a_dump_can_be_restored_on_postgresql() {
    assert_a_dump_can_be_restored(Kind::Postgres);
}

fn a_dump_can_be_restored_on_timescaledb() {
    assert_a_dump_can_be_restored(Kind::Timescale);
}

/// The steps are those of docs/how-to/store.md.
fn assert_a_dump_can_be_restored(kind: Kind) {
    let mut environment = store_of_users(kind);
    let count = environment.number("SELECT count(*) FROM samples");
    let source = server(&mut environment);
    let dumped = source
        .client("pg_dump")
        .args(["-U", "postgres", "-Fc", "-f", "store.dump", "postgres"])
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{}", text(&dumped));
    source.query("CREATE DATABASE restored");
    let run = |sql: &str| query_in(source, "restored", sql);
    if kind == Kind::Timescale {
        run("CREATE EXTENSION timescaledb");
        run("SELECT timescaledb_pre_restore()");
    }
    let restored = source
        .client("pg_restore")
        .args(["-U", "postgres", "-d", "restored", "store.dump"])
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", text(&restored));
    run("SELECT polymeter_create_roles()");
    if kind == Kind::Timescale {
        run("SELECT timescaledb_post_restore()");
    }
    assert_eq!(run("SHOW jit"), "off");
    run("ANALYZE");
    assert_eq!(run("SELECT count(*) FROM samples"), count.to_string());
    assert_eq!(
        run(
            "SET SESSION AUTHORIZATION alice; SELECT count(*), (SELECT count(*) FROM metrics_by_job WHERE job_id = 20) FROM jobs"
        ),
        "22|66"
    );
    // A collector continues.
    let url = source.url().replace("dbname=postgres", "dbname=restored");
    let config = CollectorConfig { store: url.parse().unwrap(), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n3", 3);
    (0..3).for_each(|seed| send_row(&mut agent, now_us(), seed));
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let stored = query_in(
        environment.server.as_ref().unwrap(),
        "restored",
        "SELECT count(*) FROM metrics WHERE device_id = 'n3' AND timestamp > now() - interval '1 day'",
    );
    assert_eq!(stored, "9");
}
