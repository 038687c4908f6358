//! Tests of the summaries of ended jobs and of their sums, in each kind of store.

use std::collections::BTreeMap;

use polymeter_analysis::gather::gather;
use polymeter_analysis::job_usage::job_usage;
use polymeter_analysis::trend::{Attribute, Choice, trend};
use polymeter_proto::ledger::{Event, JobDetails, JobDetailsUpdate, JobFacts, JobFactsUpdate};
use polymeter_proto::series::JobHandle;
use polymeter_store::JobUsageTable;
use polymeter_store::reader::{Access, GuardedReader, JobFilter, JobRow, JobsOf, Read, UsageGroup, UsageRow};

use crate::api::get;
use crate::reading::Fixture;
use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

scenarios! {
    ended_jobs_are_summarised_as_their_reports,
    sums_are_those_of_the_jobs_that_a_user_may_see,
    trends_are_those_of_the_runs_that_a_user_may_see,
}

fn ended_jobs_are_summarised_as_their_reports(environment: &mut TestEnvironment) {
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us() - 600_000_000;
    for (handle, id) in [(1, "41"), (2, "42")] {
        let job = job(handle, id, begin_us);
        let shape = shape(handle, Some(&job));
        let facts = JobFacts { cores: Some(4), ..JobFacts::default() };
        let details = JobDetails {
            display_id: Some(format!("40_{handle}").as_str().try_into().unwrap()),
            ..JobDetails::default()
        };
        let facts = Event::JobFacts(JobFactsUpdate { job: JobHandle(handle), facts, is_over: false });
        let details = Event::JobDetails(JobDetailsUpdate { job: JobHandle(handle), details });
        let rows: Vec<_> = (0..60).map(|second| (begin_us + second * 1_000_000, values(second).0)).collect();
        let rows: Vec<_> = rows.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        agent.frame(&rows, &[], &[facts, details]);
    }
    agent.frame(&[], &[], &[Event::JobEnded { job: JobHandle(1), at_us: begin_us + 60_000_000 }]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    let find = |id: &str| environment.jobs().into_iter().find(|job| job.job_id == id).unwrap();
    wait_until("the ended job is summarised", || find("41").usage.is_some());
    let (ended, running) = (find("41"), find("42"));
    let report = gather(&mut environment.reader() as &mut dyn Read, &ended, None).unwrap();
    let usage = ended.usage.unwrap();
    assert_eq!(usage, job_usage(&report));
    assert_eq!((usage.elapsed_s, usage.cores, running.usage), (60.0, Some(4.0), None));
    let all = JobFilter::default();
    let mut reader = environment.reader();
    let arrays = (&mut reader as &mut dyn Read).usage(UsageGroup::Array, 0..i64::MAX, &all).unwrap();
    assert_eq!((arrays.len(), arrays[0].group.as_deref(), arrays[0].jobs), (1, Some("40"), 1), "{arrays:?}");
    // It goes on, and its figures are no longer those of an ended job.
    collector.stop().unwrap();
    let mut table = JobUsageTable::open(&environment.url()).unwrap();
    assert!(table.claim(10, 0, 1).unwrap().is_empty(), "each is summarised once");
    environment.execute("UPDATE job_usage SET elapsed_s = NULL, claimed_until = NULL, attempts = 0");
    assert_eq!(table.claim(10, 0, 3_600_000_000).unwrap(), [ended.job_key]);
    let mut other = JobUsageTable::open(&environment.url()).unwrap();
    assert!(other.claim(10, 0, 1).unwrap().is_empty(), "another collector has it");
}

const SECOND_NS: i64 = 1_000_000_000;

/// Begin and length of the span that is added up, in seconds since the epoch.
const SPAN_S: (i64, i64) = (1_700_000_000, 3_600);

/// Begins an hour before it ends.
struct Job {
    uid: Option<u32>,
    account: Option<&'static str>,
    state: &'static str,
    array: Option<&'static str>,
    ended_s: i64,
    /// Cores, CPU time, GPUs and the time of these.
    figures: Option<[Option<f64>; 4]>,
}

fn jobs() -> Vec<Job> {
    let (begin_s, length_s) = SPAN_S;
    let users = [Some(64_001), Some(64_002), Some(64_001), None, Some(64_003)];
    let (accounts, states) = ([Some("a"), Some("b"), None], ["COMPLETED", "FAILED", "Error", "TIMEOUT"]);
    let figures = [
        Some([Some(8.0), Some(7_200.0), None, None]),
        Some([Some(2.0), Some(9_000.0), None, None]),
        Some([Some(4.0), Some(600.0), Some(2.0), Some(1_800.0)]),
        Some([None, Some(600.0), None, None]),
        None,
        Some([Some(1.0), None, Some(4.0), None]),
    ];
    (0..120)
        .map(|number| Job {
            uid: users[number % users.len()],
            account: accounts[number % accounts.len()],
            state: states[number % states.len()],
            array: [Some("7"), None][number % 2],
            // The first and the last second, and one before and after.
            ended_s: begin_s - 1 + [0, 1, 2, length_s, length_s + 1][number / 5 % 5],
            figures: figures[number % figures.len()],
        })
        .collect()
}

fn insert(environment: &mut TestEnvironment, jobs: &[Job]) {
    let kind = environment.kind;
    let time = |seconds: i64| match kind {
        Kind::Sqlite => (seconds * SECOND_NS).to_string(),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp({seconds})"),
    };
    let text = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
    let number = |number: Option<f64>| number.map_or("NULL".to_owned(), |number| number.to_string());
    let mut sql = String::from("BEGIN;\n");
    for (id, job) in jobs.iter().enumerate() {
        let uid = number(job.uid.map(f64::from));
        let (account, state, ended) = (text(job.account), job.state, time(job.ended_s));
        sql += &format!(
            "INSERT INTO job (job_id, owner_uid, account, state, started, ended)
             VALUES ('t{id}', {uid}, {account}, '{state}', {}, {ended});\n",
            time(job.ended_s - 3_600)
        );
        let elapsed = if job.figures.is_some() { "3600" } else { "NULL" };
        let figures = job.figures.unwrap_or_default().map(number).join(", ");
        sql += &format!(
            "INSERT INTO job_usage (job_key, ended, array_id, elapsed_s, cores, cpu_s, gpus, gpu_s)
             SELECT job_key, ended, {}, {elapsed}, {figures} FROM job WHERE job_id = 't{id}';\n",
            text(job.array)
        );
    }
    environment.execute(&(sql + "COMMIT;\n"));
}

/// Adds the jobs up one after the other.
fn expected<'a>(
    jobs: impl Iterator<Item = &'a Job>,
    group: impl Fn(&Job) -> Option<(Option<String>, Option<String>)>,
) -> BTreeMap<(Option<String>, Option<String>), UsageRow> {
    let mut groups: BTreeMap<_, UsageRow> = BTreeMap::new();
    for job in jobs.filter(|job| (SPAN_S.0..SPAN_S.0 + SPAN_S.1).contains(&job.ended_s)) {
        let Some((of, user)) = group(job) else { continue };
        let row = groups.entry((of.clone(), user.clone())).or_insert_with(|| UsageRow {
            group: of,
            user,
            ..UsageRow::default()
        });
        row.jobs += 1;
        row.failed += u64::from(["FAILED", "Error"].contains(&job.state));
        let [cores, cpu_s, gpus, gpu_s] = job.figures.unwrap_or_default();
        if let (Some(cores), Some(cpu_s)) = (cores, cpu_s) {
            row.core_s += cores * 3600.0;
            row.cpu_s += cpu_s;
            row.wasted_core_s += if gpus.is_none() { (cores * 3600.0 - cpu_s).max(0.0) } else { 0.0 };
        } else {
            row.unknown += 1;
        }
        if let (Some(gpus), Some(gpu_s)) = (gpus, gpu_s) {
            row.gpu_s += gpus * 3600.0;
            row.wasted_gpu_s += gpus * 3600.0 - gpu_s;
        }
    }
    groups
}

fn sums_are_those_of_the_jobs_that_a_user_may_see(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let jobs = jobs();
    insert(environment, &jobs);
    let span_ns = SPAN_S.0 * SECOND_NS..(SPAN_S.0 + SPAN_S.1) * SECOND_NS;
    let user = |job: &Job| job.uid.map(|uid| uid.to_string());
    for uid in [None, Some(64_001), Some(64_002), Some(64_009)] {
        let access = uid.map_or(Access::All, Access::owner);
        let mut guard = GuardedReader::new(environment.reader(), access.clone());
        let reader: &mut dyn Read = &mut guard;
        let visible = || jobs.iter().filter(move |job| uid.is_none() || job.uid == uid);
        for (by, expected) in [
            (UsageGroup::User, expected(visible(), |job| Some((user(job), None)))),
            (UsageGroup::Account, expected(visible(), |job| Some((job.account.map(str::to_owned), None)))),
            (UsageGroup::Queue, expected(visible(), |_| Some((None, None)))),
            (UsageGroup::Array, expected(visible(), |job| Some((Some(job.array?.to_owned()), user(job))))),
        ] {
            let found = reader.usage(by, span_ns.clone(), &JobFilter::default()).unwrap();
            assert!(found.is_sorted_by(|one, next| one.wasted_core_s >= next.wasted_core_s), "{found:?}");
            let found: BTreeMap<_, _> =
                found.into_iter().map(|row| ((row.group.clone(), row.user.clone()), row)).collect();
            assert_eq!(found, expected, "{access:?} {by:?}");
        }
        let of_all = reader.usage(UsageGroup::All, span_ns.clone(), &JobFilter::default()).unwrap();
        let expected = expected(visible(), |_| Some((None, None))).into_values().next().unwrap_or_default();
        // What lists show of each job adds up to the same.
        let listed = reader.jobs(&JobFilter { limit: 10_000, ..JobFilter::default() }).unwrap();
        let ended = listed.iter().filter(|job| job.ended_ns.is_some_and(|at_ns| span_ns.contains(&at_ns)));
        let wasted = ended.filter_map(|job| job.usage.as_ref()?.wasted_core_s()).sum::<f64>();
        assert!((wasted - expected.wasted_core_s).abs() < 1e-6, "{wasted}: {expected:?}");
        assert_eq!(of_all, [expected], "{access:?}");
        let of_each = JobFilter { limit: 10_000, ..JobFilter::default() };
        let found = reader.usage(UsageGroup::Job, span_ns.clone(), &of_each).unwrap();
        let found: BTreeMap<_, _> =
            found.into_iter().map(|row| (row.group.unwrap(), (row.jobs, row.wasted_core_s))).collect();
        let ended = listed.iter().filter(|job| job.ended_ns.is_some_and(|at_ns| span_ns.contains(&at_ns)));
        let expected: BTreeMap<_, _> = ended
            .map(|job| {
                let wasted = job.usage.as_ref().and_then(|usage| usage.wasted_core_s());
                (job.job_id.clone(), (1, wasted.unwrap_or_default()))
            })
            .collect();
        assert_eq!(found, expected, "{access:?}");
        let of_account = JobFilter { account: Some("b".to_owned()), limit: 1, ..JobFilter::default() };
        assert!(reader.usage(UsageGroup::User, span_ns.clone(), &of_account).unwrap().len() <= 1);
    }
    let usage = format!("/api/v1/usage?from_us={}&until_us={}", span_ns.start / 1000, span_ns.end / 1000);
    let of = |uid: u32, path: &str| get(uid, &fixture.api, path).json();
    assert_eq!(of(0, &usage)["usage"].as_array().unwrap().len(), 4, "three users, and jobs without one");
    let own = of(64_001, &usage);
    assert_eq!((own["usage"].as_array().unwrap().len(), &own["usage"][0]["group"]), (1, &"64001".into()));
    assert_eq!(of(64_009, &usage)["usage"].as_array().unwrap().len(), 0);
    assert_eq!(of(64_009, &format!("{usage}&user=64001"))["usage"].as_array().unwrap().len(), 0);
    let total = of(64_001, "/api/v1/usage/total?hours=24");
    assert_eq!((&total["jobs"], &total["wasted_core_hours"]), (&0.into(), &0.0.into()), "{total}");
    let with_csv = get(0, &fixture.api, &format!("{usage}&by=array&format=csv"));
    assert!(String::from_utf8_lossy(&with_csv.bytes).starts_with("group,user,jobs,failed,"), "{with_csv:?}");
    for wrong in ["by=colour", "limit=0", "from_us=x"] {
        assert_eq!(get(0, &fixture.api, &format!("/api/v1/usage?{wrong}")).status, 400, "{wrong}");
    }
    let rows: Vec<JobRow> = environment.jobs();
    assert!(rows.iter().filter(|row| row.ended_ns.is_none()).all(|row| row.usage.is_none()));
}

/// Length of a run of `train`: with 2 % of noise, and from a run on 18 % more.
fn elapsed_s(number: i64, changed: i64) -> i64 {
    10_000 + number * 7_919 % 200 + if number >= changed { 1_800 } else { 0 }
}

fn insert_runs(environment: &mut TestEnvironment, uid: u32, account: &str, count: i64, changed: i64) {
    let kind = environment.kind;
    let time = |seconds: &str| match kind {
        Kind::Sqlite => format!("(1600000000 + {seconds}) * 1000000000"),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp(1600000000 + {seconds})"),
    };
    let elapsed = format!("(10000 + n * 7919 % 200 + CASE WHEN n >= {changed} THEN 1800 ELSE 0 END)");
    let (start, end) = (time("n * 3600"), time(&format!("n * 3600 + {elapsed}")));
    let numbers = format!(
        "WITH RECURSIVE run (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM run WHERE n < {})",
        count - 1
    );
    environment.execute(&format!(
        "INSERT INTO job (job_id, owner_uid, account, name, state, started, ended, run)
         {numbers} SELECT '{account}' || n, {uid}, '{account}', 'train', 'COMPLETED', {start}, {end},
             '{{\"command\": [\"' || CASE WHEN n >= {changed} THEN 'new' ELSE 'old' END || '\"]}}' FROM run ORDER BY n + 0"
    ));
    environment.execute(&format!(
        "INSERT INTO job_usage (job_key, ended, elapsed_s, cores, cpu_s, energy_j)
         {numbers} SELECT job_key, ended, {elapsed}, 2, {elapsed} * 1.5, 5000
         FROM run JOIN job ON job_id = '{account}' || n"
    ));
}

fn median_elapsed_s(numbers: std::ops::Range<i64>, changed: i64) -> f64 {
    let mut values: Vec<i64> = numbers.map(|number| elapsed_s(number, changed)).collect();
    values.sort_unstable();
    values[values.len() / 2] as f64
}

fn trends_are_those_of_the_runs_that_a_user_may_see(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let [one, other] = [64_001, 64_002];
    insert_runs(environment, one, "geo", 10_000, 7_003);
    insert_runs(environment, other, "bio", 40, 22);
    environment.execute(
        "INSERT INTO job (job_id, owner_uid, account, name, state, started, ended)
         SELECT 'failed', owner_uid, account, name, 'FAILED', started, ended FROM job WHERE job_id = 'bio3'",
    );
    let answer = |uid: u32, query: &str| get(uid, &fixture.api, &format!("/api/v1/trend?{query}"));
    // An administrator has the runs of the owner of the latest one.
    for (uid, query) in [(one, "name=train"), (0, "name=train"), (0, "name=train&user=64001")] {
        let found = answer(uid, query).json();
        let runs = found["runs"].as_array().unwrap();
        assert_eq!((runs.len(), &found["uid"], &found["left_out"]), (10_000, &one.into(), &0.into()));
        assert_eq!(found["changes"].as_array().unwrap().len(), 1, "{}", found["changes"]);
        let change = &found["changes"][0];
        assert_eq!((&change["job"], &runs[7_003]["job"]), (&"geo7003".into(), &change["job"]));
        let level = &change["levels"][0];
        let expected = [median_elapsed_s(0..7_003, 7_003), median_elapsed_s(7_003..10_000, 7_003)];
        for (key, expected) in ["before", "after"].into_iter().zip(expected) {
            assert!((level[key].as_f64().unwrap() - expected).abs() <= 1.0, "{level}: {expected}");
        }
        let percent = 100.0 * (expected[1] / expected[0] - 1.0);
        assert!((level["percent"].as_f64().unwrap() - percent).abs() < 0.1, "{level}");
        let run = &runs[5];
        let seconds = elapsed_s(5, 7_003) as f64;
        assert_eq!((&run["elapsed_s"], &run["cpu_s"]), (&seconds.into(), &(seconds * 1.5).into()));
        assert_eq!((&run["cores_used"], &run["energy_j"]), (&1.5.into(), &5000.0.into()));
        assert_eq!(run["wasted_core_hours"], seconds * 0.5 / 3600.0);
    }
    let of_other = answer(other, "name=train").json();
    assert_eq!((of_other["runs"].as_array().unwrap().len(), &of_other["left_out"]), (40, &1.into()));
    assert_eq!(of_other["changes"][0]["job"], "bio22");
    let later = answer(other, "name=train&from_us=1600100000000000").json();
    assert!((10..20).contains(&later["runs"].as_array().unwrap().len()), "{later}");
    // A manager has the runs of the account, without what their owner executed.
    let command = Attribute { attribute: "command", before: "old".to_owned(), after: "new".to_owned() };
    for (access, has_command) in [
        (Access::owner(other), true),
        (Access::Jobs(JobsOf { uid: 64_007, accounts: vec!["bio".to_owned()] }), false),
    ] {
        let mut guard = GuardedReader::new(environment.reader(), access);
        let choice = Choice { name: "train".to_owned(), ..Choice::default() };
        let found = trend(&mut guard, &choice).unwrap().unwrap();
        assert_eq!((found.uid, found.runs.len(), found.changes.len()), (Some(other.into()), 40, 1));
        assert_eq!(found.changes[0].with.contains(&command), has_command);
        let of_one = Choice { user: Some(one.to_string()), ..choice };
        assert_eq!(trend(&mut guard, &of_one).unwrap(), None);
    }
    // Nothing tells a name of others from one that does not exist.
    let unknown = answer(one, "name=other");
    for (uid, query) in [(64_009, "name=train"), (other, "name=train&user=64001"), (one, "name=trai")] {
        let found = answer(uid, query);
        assert_eq!((found.status, &found.bytes), (404, &unknown.bytes), "{query}");
    }
    for wrong in ["", "name=", "name=train&from_us=x"] {
        assert_eq!(answer(one, wrong).status, 400, "{wrong}");
    }
}
