//! Tests of samples that Citus distributes, with stand-ins for its functions: they record their calls, and
//! reject a sample whose key is not that of its node. All scenarios run on them, too.

use polymeter_collector::{Collector, CollectorConfig, CollectorStartError};
use polymeter_store::{ExtensionMode, StoreError};

use crate::postgres::{assert_counts, send_row, server};
use crate::support::agent::{Agent, shape, values};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    samples_are_distributed_by_node,
    citus_can_be_turned_off,
    a_store_without_citus_stays_on_one_server,
    a_store_on_one_server_is_distributed_if_citus_is_required,
    old_partitions_become_columnar,
    recent_samples_are_summarised_by_shard,
    citus_and_timescaledb_exclude_each_other,
    refuses_what_cannot_be_distributed
];

const DAY_US: i64 = 86_400 * 1_000_000;

const FORM: &str = "Citus, distributed by node, with a partition per day";

const CALLS: &str = "SELECT text FROM citus_call ORDER BY number";

fn config(environment: &TestEnvironment, citus: ExtensionMode) -> CollectorConfig {
    CollectorConfig { citus, ..environment.config() }
}

/// Reason for which a collector cannot start.
fn refusal(environment: &TestEnvironment, config: &CollectorConfig) -> String {
    let error = Collector::start(config, &environment.context).map(drop).unwrap_err();
    let CollectorStartError::Store { source: StoreError::Unusable(why), .. } = &error else {
        panic!("{error:?}")
    };
    why.clone()
}

fn samples_are_distributed_by_node() {
    let mut environment = TestEnvironment::new(Kind::Citus);
    let auto = config(&environment, ExtensionMode::Auto);
    let collector = Collector::start(&auto, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, FORM, "{}", collector.write_mode());
    let mut agents: Vec<_> =
        (1..=3).map(|n| Agent::to(&environment.context, &collector, &format!("n{n}"), n)).collect();
    (0..10).for_each(|seed| agents.iter_mut().for_each(|agent| send_row(agent, now_us(), seed)));
    agents.iter_mut().for_each(Agent::wait_until_acknowledged);
    collector.stop().unwrap();
    (1..=3).for_each(|n| assert_counts(&environment, &format!("n{n}"), 10));
    let server = server(&mut environment);
    assert_eq!(server.query(CALLS).lines().next(), Some("create_distributed_table samples node_key default"));
    let of_nodes = "SELECT bool_and(node_key = polymeter_node_key(node)), count(DISTINCT node_key) FROM samples JOIN series USING (series_id)";
    assert_eq!(server.query(of_nodes), "t|3");
}

fn citus_can_be_turned_off() {
    let environment = TestEnvironment::new(Kind::Citus);
    let off = config(&environment, ExtensionMode::Off);
    let collector = Collector::start(&off, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    collector.stop().unwrap();
    // The table keeps its form.
    let auto = config(&environment, ExtensionMode::Auto);
    let collector = Collector::start(&auto, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    collector.stop().unwrap();
    environment.collector().stop().unwrap();
    let collector = Collector::start(&off, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, FORM);
    assert!(collector.write_mode().reason.contains("already distributed"), "{}", collector.write_mode());
    collector.stop().unwrap();
}

fn a_store_without_citus_stays_on_one_server() {
    let environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    let why = refusal(&environment, &config(&environment, ExtensionMode::Require));
    assert!(why.starts_with("cannot use Citus, which is required: "), "{why}");
    assert!(why.ends_with("; or set citus = \"auto\" to do without it"), "{why}");
}

fn a_store_on_one_server_is_distributed_if_citus_is_required() {
    let mut environment = TestEnvironment::new(Kind::Citus);
    let off = config(&environment, ExtensionMode::Off);
    let collector = Collector::start(&off, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    (0..10).for_each(|seed| send_row(&mut agent, now_us() - 3 * DAY_US, seed));
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let collector = environment.collector();
    assert_eq!(collector.write_mode().name, FORM);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 2);
    (0..5).for_each(|seed| send_row(&mut agent, now_us(), seed));
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 15);
    let keys = "SELECT count(DISTINCT node_key), min(node_key) = polymeter_node_key('n1') FROM samples";
    assert_eq!(server(&mut environment).query(keys), "1|t");
}

fn old_partitions_become_columnar() {
    let mut environment = TestEnvironment::new(Kind::Citus);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    // One frame is one commit: a partition that is closed between two commits has the rows of each in order.
    let (of_node, begin_us) = (shape(1, None), now_us());
    let mut samples = Vec::new();
    for days in [5, 4, 0] {
        samples.extend((0..10).map(|seed| (begin_us - days * DAY_US + seed * 1_000_000, values(seed).0)));
    }
    let rows: Vec<_> =
        samples.iter().map(|(time_us, values)| (&of_node, *time_us, values.as_slice())).collect();
    let sequence = agent.frame(&rows, &[], &[]);
    agent.send(sequence);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let collector = environment.collector();
    let columnar = "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
        WHERE inhparent = 'samples'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'columnar') ORDER BY 1";
    wait_until("the past days are columnar", || {
        server(&mut environment).query(columnar).lines().count() >= 2
    });
    // The stand-in of a late sample.
    let mut agent = Agent::to(&environment.context, &collector, "n1", 2);
    send_row(&mut agent, begin_us - 5 * DAY_US, 100);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 31);
    let server = server(&mut environment);
    let names = server.query(columnar);
    for name in names.lines() {
        let stored = server.query(&format!("SELECT series_id, time FROM {name} ORDER BY ctid LIMIT 30"));
        let sorted = server.query(&format!(
            "SELECT series_id, time FROM (SELECT * FROM {name} ORDER BY ctid LIMIT 30) AS first ORDER BY 1, 2"
        ));
        assert_eq!(stored, sorted, "{name}");
        let open = format!("SELECT count(*) FROM polymeter_partition_to_close WHERE partition = '{name}'");
        assert_eq!(server.query(&open), "0", "{name}");
        let call = format!("create_distributed_table {name}_columnar node_key samples");
        assert!(server.query(CALLS).contains(&call), "{call}");
    }
    assert_eq!(server.query("SELECT count(*) FROM pg_class WHERE relname LIKE '%columnar%'"), "0");
}

fn recent_samples_are_summarised_by_shard() {
    let mut environment = TestEnvironment::new(Kind::Citus);
    let collector = environment.collector();
    let today =
        server(&mut environment).query("SELECT to_char((now() AT TIME ZONE 'UTC')::date, 'YYYYMMDD')");
    wait_until("the shards are summarised", || {
        server(&mut environment).query(CALLS).contains(&format!("run_command_on_shards samples_{today}"))
    });
    collector.stop().unwrap();
}

fn citus_and_timescaledb_exclude_each_other() {
    let environment = TestEnvironment::new(Kind::Citus);
    let both = CollectorConfig { timescaledb: ExtensionMode::Require, ..environment.config() };
    let why = refusal(&environment, &both);
    assert!(why.contains("both are required; set citus = \"off\" or timescaledb = \"off\""), "{why}");
    environment.collector().stop().unwrap();
    let timescaledb =
        CollectorConfig { timescaledb: ExtensionMode::Require, ..config(&environment, ExtensionMode::Auto) };
    let why = refusal(&environment, &timescaledb);
    assert!(why.starts_with("cannot use TimescaleDB, which is required: "), "{why}");
}

fn assert_change_is_refused(environment: &mut TestEnvironment, change: &str, undo: &str, expected: &str) {
    environment.execute(change);
    let why = refusal(environment, &environment.config());
    assert!(why.contains(expected), "{why}");
    environment.execute(undo);
}

fn refuses_what_cannot_be_distributed() {
    let mut environment = TestEnvironment::new(Kind::Citus);
    assert_change_is_refused(
        &mut environment,
        "UPDATE pg_dist_local_group SET groupid = 1",
        "UPDATE pg_dist_local_group SET groupid = 0",
        "its server is a worker of Citus; let the URL of the store name the coordinator (coordinator.example:5432)",
    );
    assert_change_is_refused(
        &mut environment,
        "UPDATE pg_dist_node SET isactive = false WHERE groupid = 1",
        "UPDATE pg_dist_node SET isactive = true",
        "no server holds shards; let a superuser add workers with citus_add_node",
    );
    assert_change_is_refused(
        &mut environment,
        "UPDATE citus_worker_setting SET setting = '0'",
        "UPDATE citus_worker_setting SET setting = '100'",
        "transactions cannot be prepared on worker.example:5432; set max_prepared_transactions there",
    );
    assert_change_is_refused(
        &mut environment,
        "DELETE FROM pg_extension WHERE extname = 'citus'",
        "SELECT 1",
        "cannot use Citus, which is required: ",
    );
    // Nothing was left behind.
    let server = server(&mut environment);
    assert_eq!(server.query("SELECT to_regclass('samples') IS NULL"), "t");
}
