//! Tests of samples whose times are out of range, with every kind of store.

use polymeter_collector::ingest::{OutOfRangePolicy, TimeRange};
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::ledger::{LedgerEntry, Tally};
use polymeter_proto::series::JobHandle;
use polymeter_store::{Administration, Retention, prune, set_retention};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us, only_job, wait_until};

scenarios! {
    samples_out_of_range_are_counted,
    samples_out_of_range_are_quarantined,
    samples_in_quarantine_are_removed_by_their_arrival,
}

fn samples_out_of_range_are_counted(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = environment.collector();
    let own = shape(1, None);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 10);
    let (row, _) = values(0);
    let row = row.as_slice();
    agent.frame(
        &[(&own, begin_us + 7, row), (&own, begin_us - 400 * 86_400 * 1_000_000, row), (&own, i64::MAX, row)],
        &[],
        &[],
    );
    // A time a month ago is accepted; on plain PostgreSQL it needs a partition that does not exist yet.
    agent.frame(&[(&own, begin_us - 30 * 86_400 * 1_000_000, row)], &[], &[]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.losses.in_collector()), (6, 6));
    let losses = environment.reader().last_losses(u32::MAX).unwrap();
    assert!(losses.iter().all(|loss| loss.reason == "clock"));
    assert_eq!(losses.iter().map(|loss| loss.samples).sum::<u64>(), 6);
}

const YEAR_US: i64 = 366 * 86_400 * 1_000_000;

pub(crate) fn quarantine_config(environment: &TestEnvironment) -> CollectorConfig {
    let clock = TimeRange { out_of_range: OutOfRangePolicy::Quarantine, ..TimeRange::default() };
    CollectorConfig { clock, ..environment.config() }
}

/// Sends a tally and rows of a job's source: two rows with the current time and one from a clock that is two
/// years behind.
pub(crate) fn send_with_skewed_clock(agent: &mut Agent, begin_us: i64) {
    let (row, _) = values(1);
    let row = row.as_slice();
    let of_job = shape(1, Some(&job(1, "1", begin_us)));
    let tally = Tally { due: 12, taken: 9, late: 0, missed: 2, absent: 1, dropped: 0, not_kept: 0 };
    let entry = LedgerEntry { job: Some(JobHandle(1)), source: "stat".try_into().unwrap(), tally };
    let rows =
        [(&of_job, begin_us, row), (&of_job, begin_us - 2 * YEAR_US, row), (&of_job, begin_us + 7, row)];
    agent.frame(&rows, &[entry], &[]);
    agent.send_from(0);
}

fn samples_out_of_range_are_quarantined(environment: &mut TestEnvironment) {
    let begin_us = now_us();
    let collector = Collector::start(&quarantine_config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 20);
    send_with_skewed_clock(&mut agent, begin_us);
    // The frame is sent twice, as after a lost acknowledgement.
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.quarantined, totals.losses.in_collector()), (6, 3, 0));
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 6);
    let two_years = match environment.kind {
        Kind::Sqlite => {
            format!("received - time BETWEEN {y}000 AND {y}000 + 3600000000000", y = 2 * YEAR_US)
        }
        _ => "received - time BETWEEN interval '732 days' AND interval '732 days 1 hour'".to_owned(),
    };
    let of_job = "samples_quarantine JOIN series USING (series_id) JOIN job USING (job_key)";
    assert_eq!(
        environment.number(&format!("SELECT count(*) FROM {of_job} WHERE job.job_id = '1' AND {two_years}")),
        3
    );
    let adds_up = "due = missed + absent + dropped + skipped + rejected + quarantined + stored";
    let counts = "quarantined = 3 AND stored = 6 AND rejected = 0 AND job_key IS NOT NULL";
    assert_eq!(
        environment.number(&format!("SELECT count(*) FROM ledger_balance WHERE {adds_up} AND {counts}")),
        1
    );
    assert_eq!(environment.number("SELECT sum(stored) FROM session"), 6);
    assert_eq!(environment.number("SELECT count(*) FROM loss"), 0);
    let job_key = only_job(environment).job_key;
    let ledger = environment.reader().ledger(job_key).unwrap();
    assert_eq!((ledger[0].quarantined, ledger[0].stored), (3, 6));
    // No partition for a day two years ago was created in the table of the other samples.
    if environment.kind == Kind::Postgres {
        let old = "SELECT count(*) FROM pg_class WHERE relname ~ '^samples_[0-9]{8}$'
             AND relname < 'samples_' || to_char(now() AT TIME ZONE 'UTC' - interval '2 days', 'YYYYMMDD')";
        assert_eq!(environment.number(old), 0);
    }
    // The samples can be moved, as docs/explanation/security.md describes.
    if environment.kind != Kind::Sqlite {
        environment.execute(
            "INSERT INTO samples (time, series_id, value) SELECT time + interval '732 days', series_id, value FROM samples_quarantine JOIN series USING (series_id) WHERE node = 'n1';
             DELETE FROM samples_quarantine USING series WHERE series.series_id = samples_quarantine.series_id AND node = 'n1'",
        );
        assert_eq!(environment.number("SELECT count(*) FROM samples"), 9);
        assert_eq!(environment.number("SELECT count(*) FROM samples_quarantine"), 0);
    }
}

/// The policy of samples is that of the quarantine. Samples of kept jobs stay.
fn samples_in_quarantine_are_removed_by_their_arrival(environment: &mut TestEnvironment) {
    let collector = Collector::start(&quarantine_config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 20);
    send_with_skewed_clock(&mut agent, now_us());
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let url = environment.url();
    let count = |environment: &TestEnvironment| environment.number("SELECT count(*) FROM samples_quarantine");
    // The server may notice only after a while that the connection with the lock of the maintenance has
    // ended.
    let prune = || wait_until("the store is pruned", || prune(&url, None, |_, _| ()).is_ok());
    prune();
    assert_eq!(count(environment), 3, "a new store keeps all");
    set_retention(&url, &Retention::default()).unwrap();
    prune();
    assert_eq!(count(environment), 3, "they arrived just now");
    environment.execute(match environment.kind {
        Kind::Sqlite => "UPDATE samples_quarantine SET received = received - 91 * 86400 * 1000000000",
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            "UPDATE samples_quarantine SET received = received - interval '91 days'"
        }
    });
    let job_key = only_job(environment).job_key;
    let administration = || Administration::open(&url).unwrap();
    administration().keep(job_key, None).unwrap();
    prune();
    assert_eq!(count(environment), 3, "the job is kept");
    administration().release(job_key).unwrap();
    prune();
    assert_eq!(count(environment), 0);
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 6);
}
