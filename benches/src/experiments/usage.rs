//! Sums over a store with many ended jobs, and a backtest of the proposals for requests.

use std::error::Error;
use std::io::{Seek as _, Write as _};
use std::ops::Range;

use polymeter_analysis::model::Resource;
use polymeter_analysis::proposals::{Proposal, Request, has_finished, like, propose};
use polymeter_benches::clock::{now_ns, wall_us};
use polymeter_benches::statistics::{Random, median};
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_store::reader::{JobFilter, JobRow, Read, Reader, UsageGroup};
use polymeter_store::{OpenOptions, StoreUrl};

/// Measures sums over many ended jobs, and tests proposals for requests on them.
///
/// The jobs of 40 users are made up: each user has programs, which differ in time and memory by orders of
/// magnitude. The runs of a program vary lognormally (3 % to 50 % in time, 1 % to 25 % in memory); a quarter
/// of the programs have a second input that takes 2.5 times as long and needs 1.4 times the memory, half of
/// them become slower from run to run, and one run in a hundred takes twice as long. People request 1.3 to 10
/// times as much as usual, in round numbers, and more after a run that reached a limit. The proposal for each
/// tested job is made from the earlier jobs of its user, read from the store; it fits if the job, which
/// finished, needed no more of any resource.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of jobs.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of jobs whose request is proposed.
    #[arg(long, default_value_t = 5_000)]
    tests: usize,
    /// Seed of the jobs.
    #[arg(long, default_value_t = 33)]
    seed: u64,
    /// Store; by default the best that is installed.
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// Print the plans of the statements.
    #[arg(long)]
    plans: bool,
    /// Run for some seconds with fewer jobs, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// Number of users, and the numeric id of the first one.
const USERS: u32 = 40;
const FIRST_UID: u32 = 10_000;

/// Days in which the jobs ended.
const DAYS: i64 = 91;

const DAY_S: i64 = 86_400;

const GIB: f64 = 1_073_741_824.0;

/// Time limits that people request, in hours.
const HOURS: [f64; 11] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0, 48.0, 72.0, 168.0];

const RUNS: usize = 5;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (jobs, tests) = if arguments.quick { (3_000, 300) } else { (arguments.jobs, arguments.tests) };
    table::machine();
    let store = Store::start(arguments.store.unwrap_or_else(Kind::best))?;
    let url: StoreUrl = store.url().parse()?;
    drop(polymeter_store::Store::open(&url, &OpenOptions { may_create: true, ..OpenOptions::default() })?);
    let now_s = wall_us() / 1_000_000;
    fill(&store, &made_up(jobs, arguments.seed), now_s)?;
    measure(&url, now_s, arguments.plans)?;
    say("");
    backtest(&url, jobs.div_ceil(tests.max(1)))
}

struct Job {
    uid: u32,
    name: String,
    /// Position in time, from 0 to 1.
    at: f64,
    state: &'static str,
    elapsed_s: f64,
    limit_s: f64,
    memory_bytes: f64,
    request_bytes: f64,
    cores: f64,
    cores_peak: f64,
    gpus: Option<f64>,
    gpus_used: f64,
}

struct Chance(Random);

impl Chance {
    fn uniform(&mut self) -> f64 {
        to_f64(self.0.below(1 << 52)) / to_f64(1 << 52)
    }

    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform().max(1e-12), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }

    fn one_of<const N: usize>(&mut self, values: [f64; N]) -> f64 {
        let position = usize::try_from(self.0.below(N as u64)).unwrap_or(0);
        values.get(position).copied().unwrap_or(1.0)
    }
}

/// Makes up at least `count` jobs, program by program.
fn made_up(count: usize, seed: u64) -> Vec<Job> {
    let mut chance = Chance(Random::new(seed));
    let mut jobs = Vec::with_capacity(count + 300);
    let mut program = 0;
    while jobs.len() < count {
        program += 1;
        add_program(program, &mut chance, &mut jobs);
    }
    jobs
}

fn add_program(program: u32, chance: &mut Chance, jobs: &mut Vec<Job>) {
    let usual_s = (3600_f64.ln() + 1.2 * chance.normal()).exp();
    let usual_gib = (6_f64.ln() + chance.normal()).exp();
    let (time_spread, memory_spread) =
        (chance.one_of([0.03, 0.1, 0.2, 0.35, 0.5]), chance.one_of([0.01, 0.03, 0.1, 0.25]));
    let has_two_inputs = chance.uniform() < 0.25;
    let drift = chance.one_of([0.0, 0.0, 0.002, 0.005]);
    let cores = chance.one_of([1.0, 4.0, 16.0, 64.0]);
    let used = if chance.uniform() < 0.3 { chance.one_of([0.1, 0.25, 0.5]) } else { 1.0 };
    let gpus = (chance.uniform() < 0.2).then(|| chance.one_of([1.0, 2.0, 4.0]));
    let gpus_used = gpus.map_or(0.0, |gpus| if chance.uniform() < 0.2 { 1.0 } else { gpus });
    let has_numbers = chance.uniform() < 0.5;
    let next_hours = |hours: f64| HOURS.into_iter().find(|step| *step >= hours).unwrap_or(336.0);
    let mut limit_h = next_hours(usual_s / 3600.0 * chance.one_of([1.6, 3.0, 5.0, 10.0]));
    let mut request_gib = 4.0 * (usual_gib * chance.one_of([1.3, 2.0, 4.0, 8.0]) / 4.0).ceil();
    // A few programs have most runs.
    let runs = (6.0 / chance.uniform().max(0.002).powf(1.25)).clamp(3.0, 300.0);
    let mut ends: Vec<f64> = (0..table::to_u64(runs)).map(|_| chance.uniform()).collect();
    ends.sort_by(f64::total_cmp);
    for (run, at) in ends.into_iter().enumerate() {
        let is_second = has_two_inputs && chance.uniform() < 0.3;
        let outlier = if chance.uniform() < 0.01 { 2.0 } else { 1.0 };
        let grown = (1.0_f64 + drift).powf(to_f64(run as u64));
        let input = if is_second { (2.5, 1.4) } else { (1.0, 1.0) };
        let needed_s = (usual_s * input.0 * (time_spread * chance.normal()).exp() * grown * outlier).max(1.0);
        let needed_gib = usual_gib * input.1 * (memory_spread * chance.normal()).exp();
        let state = if needed_gib > request_gib {
            "OUT_OF_MEMORY"
        } else if needed_s > 3600.0 * limit_h {
            "TIMEOUT"
        } else if chance.uniform() < 0.05 {
            "FAILED"
        } else {
            "COMPLETED"
        };
        let number = if has_numbers { format!("_{run}") } else { String::new() };
        jobs.push(Job {
            uid: FIRST_UID + program % USERS,
            name: format!(
                "prog{}{number}",
                char::from(b'a' + u8::try_from(program / USERS % 26).unwrap_or(0))
            ),
            at,
            state,
            elapsed_s: needed_s.min(3600.0 * limit_h),
            limit_s: 3600.0 * limit_h,
            memory_bytes: needed_gib.min(request_gib) * GIB,
            request_bytes: request_gib * GIB,
            cores,
            cores_peak: (cores * used).max(1.0) * (0.97 + 0.03 * chance.uniform()),
            gpus,
            gpus_used,
        });
        match state {
            "TIMEOUT" => limit_h = next_hours(1.01 * limit_h),
            "OUT_OF_MEMORY" => request_gib *= 2.0,
            _ => {}
        }
    }
}

fn fill(store: &Store, jobs: &[Job], now_s: i64) -> Result<(), Box<dyn Error>> {
    let path = store.path();
    let time = |seconds: i64| {
        if path.is_some() { format!("{seconds}000000000") } else { format!("to_timestamp({seconds})") }
    };
    let mut statements = vec!["BEGIN;\n".to_owned()];
    for (number, job) in jobs.iter().enumerate() {
        let ended_s = now_s - DAYS * DAY_S + i64::try_from(table::to_u64(job.at * to_f64(91 * 86_400)))?;
        let began_s = ended_s - i64::try_from(table::to_u64(job.elapsed_s))?;
        let (began, ended) = (time(began_s), time(ended_s));
        let gpus = job.gpus.map_or("NULL".to_owned(), |gpus| gpus.to_string());
        let gpu_s = job.gpus.map_or("NULL".to_owned(), |_| (job.gpus_used * 0.6 * job.elapsed_s).to_string());
        statements.push(format!(
            "INSERT INTO job (job_id, owner, owner_uid, started, ended, account, queue, cores, state, name,
                 time_limit_s, memory_bytes, gpus)
             VALUES ('{number}', 'user{uid}', {uid}, {began}, {ended}, 'account{}', 'queue{}', {:.0}, '{}', '{}',
                 {:.0}, {:.0}, {gpus});
             INSERT INTO job_usage (job_key, ended, array_id, elapsed_s, nodes, cores, cpu_s, cores_peak,
                 memory_request_bytes, memory_used_bytes, memory_bound_bytes, gpus, gpus_used, gpu_s)
             SELECT job_key, ended, {}, {elapsed_s}, 1, {cores}, {}, {}, {}, {memory}, {memory}, {gpus}, {}, {gpu_s}
             FROM job WHERE job_id = '{number}';\n",
            job.uid % 7,
            number % 5,
            job.cores,
            job.state,
            job.name,
            job.limit_s,
            job.request_bytes,
            if number % 3 == 0 { format!("'{}'", number / 300) } else { "NULL".to_owned() },
            0.9 * job.cores_peak * job.elapsed_s,
            job.cores_peak,
            job.request_bytes,
            job.gpus_used,
            uid = job.uid,
            elapsed_s = job.elapsed_s,
            cores = job.cores,
            memory = job.memory_bytes,
        ));
    }
    statements.push("COMMIT;\n".to_owned());
    if let Some(path) = path {
        // SQLite copies the rest of a text for each of its statements.
        let connection = rusqlite::Connection::open(path)?;
        statements.iter().try_for_each(|statement| connection.execute_batch(statement))?;
        return Ok(());
    }
    statements.push("VACUUM ANALYZE job;\nVACUUM ANALYZE job_usage;\n".to_owned());
    let mut file = tempfile::tempfile()?;
    file.write_all(statements.concat().as_bytes())?;
    file.rewind()?;
    let output = store.psql()?.args(["-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]).stdin(file).output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn measure(url: &StoreUrl, now_s: i64, prints_plans: bool) -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::open(url)?;
    let groups = [
        ("all jobs", UsageGroup::All),
        ("user", UsageGroup::User),
        ("account", UsageGroup::Account),
        ("queue", UsageGroup::Queue),
        ("array", UsageGroup::Array),
        ("job", UsageGroup::Job),
    ];
    let span_ns = |days: i64| -> Range<i64> { (now_s - days * DAY_S) * 1_000_000_000..now_s * 1_000_000_000 };
    let of_user = JobFilter { owner_uid: Some(i64::from(FIRST_UID)), limit: 1000, ..JobFilter::default() };
    let of_all = JobFilter { limit: 1000, ..JobFilter::default() };
    table::head(&["sums by", "jobs", "groups", "last day", "all 91 days", "all of one user"]);
    for (name, by) in groups {
        let mut cells = vec![name.to_owned()];
        let mut times = Vec::new();
        for (days, filter) in [(1, &of_all), (DAYS + 1, &of_all), (DAYS + 1, &of_user)] {
            let mut runs = Vec::new();
            for _ in 0..RUNS {
                let begin_ns = now_ns();
                let rows = (&mut reader as &mut dyn Read).usage(by, span_ns(days), filter)?;
                runs.push(to_f64(now_ns() - begin_ns) / 1e6);
                if days > 1 && cells.len() == 1 {
                    cells.push(rows.iter().map(|row| row.jobs).sum::<u64>().to_string());
                    cells.push(rows.len().to_string());
                }
            }
            times.push(format!("{:.1} ms", median(runs)));
        }
        cells.extend(times);
        table::row(&cells);
    }
    if prints_plans {
        reader.record_plans();
        for days in [1, DAYS + 1] {
            (&mut reader as &mut dyn Read).usage(UsageGroup::User, span_ns(days), &of_all)?;
        }
        reader.take_plans().iter().for_each(|plan| say(plan));
    }
    Ok(())
}

/// Results of the tests of one resource.
#[derive(Default)]
struct Tested {
    proposals: u64,
    fit: u64,
    /// Proposals as shares of the requests, of jobs whose request is known.
    shares: Vec<f64>,
}

impl Tested {
    /// Adds a proposal for a job, and whether the job needed no more.
    fn add(&mut self, proposal: &Proposal, needed: f64) -> bool {
        let is_enough = needed <= proposal.proposed;
        self.proposals += 1;
        self.fit += u64::from(is_enough);
        self.shares.extend(proposal.requested.map(|requested| proposal.proposed / requested));
        is_enough
    }

    /// Number of proposals, share that fits, and the change of the requests.
    fn cells(self) -> [String; 3] {
        let fit = (self.proposals > 0).then(|| format!("{:.1} %", percent(self.fit, self.proposals)));
        let is_requested = !self.shares.is_empty();
        let change = is_requested.then(|| format!("{:+.0} %", 100.0 * (median(self.shares) - 1.0)));
        [Some(self.proposals.to_string()), fit, change].map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * to_f64(part) / to_f64(of.max(1))
}

fn backtest(url: &StoreUrl, stride: usize) -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::open(url)?;
    let resources = [Resource::Time, Resource::Memory, Resource::Cpu, Resource::Gpu];
    let mut tested = resources.map(|_| Tested::default());
    let (mut jobs_tested, mut with_proposals, mut fit, mut all_fit) = (0_u64, 0_u64, 0_u64, 0_u64);
    for user in 0..USERS {
        let filter = JobFilter {
            owner_uid: Some(i64::from(FIRST_UID + user)),
            is_ended: Some(true),
            limit: u32::MAX,
            ..JobFilter::default()
        };
        // The one that started last first.
        let jobs = reader.jobs(&filter)?;
        for (position, job) in jobs.iter().enumerate().filter(|(position, _)| position % stride == 0) {
            if !has_finished(job) {
                continue;
            }
            let request = Request::of(job);
            let earlier: Vec<JobRow> = jobs
                .iter()
                .skip(position + 1)
                .filter(|other| other.ended_ns <= Some(job.started_ns))
                .cloned()
                .collect();
            let proposals = propose(&like(&earlier, &request).jobs, &request);
            jobs_tested += 1;
            let mut fits = true;
            for (resource, tested) in resources.iter().zip(&mut tested) {
                let Some((proposal, needed)) = of(&proposals, *resource, job) else { continue };
                fits &= tested.add(proposal, needed);
            }
            with_proposals += u64::from(!proposals.is_empty());
            fit += u64::from(fits && !proposals.is_empty());
            all_fit += u64::from(fits);
        }
    }
    table::head(&["resource", "proposals", "fit", "change of the request, median"]);
    for (resource, tested) in resources.iter().zip(tested) {
        let [proposals, fit, change] = tested.cells();
        table::row(&[resource.name().to_owned(), proposals, fit, change]);
    }
    say("");
    say(&format!(
        "{jobs_tested} jobs tested, {with_proposals} with proposals: {:.1} % of these fit in all resources, {:.1} % of all",
        percent(fit, with_proposals),
        percent(all_fit, jobs_tested)
    ));
    Ok(())
}

/// Proposal for a resource, and what the job needed of it, if both are known.
fn of<'a>(proposals: &'a [Proposal], resource: Resource, job: &JobRow) -> Option<(&'a Proposal, f64)> {
    let usage = job.usage.as_ref()?;
    let needed = match resource {
        Resource::Time => usage.elapsed_s,
        Resource::Memory => usage.memory_used_bytes?,
        Resource::Cpu => (usage.cores_peak? - 0.1).ceil(),
        Resource::Gpu => usage.gpus_used?,
    };
    Some((proposals.iter().find(|of| of.resource == resource)?, needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(requested: Option<f64>, proposed: f64) -> Proposal {
        Proposal {
            resource: Resource::Gpu,
            requested,
            jobs: 9,
            median: 1.0,
            median_interval: None,
            most: 1.0,
            proposed,
            fits_at_least: 0.9,
        }
    }

    #[test]
    fn proposals_without_a_request_count_among_those_that_fit() {
        let mut tested = Tested::default();
        assert!(tested.add(&proposal(Some(4.0), 2.0), 2.0));
        assert!(tested.add(&proposal(None, 1.0), 1.0));
        assert!(tested.add(&proposal(None, 1.0), 0.0));
        assert!(!tested.add(&proposal(Some(4.0), 2.0), 3.0));
        assert_eq!(tested.cells(), ["4", "75.0 %", "-50 %"]);
    }

    #[test]
    fn a_resource_without_requests_has_no_change() {
        let mut tested = Tested::default();
        assert!(!tested.add(&proposal(None, 1.0), 2.0));
        assert_eq!(tested.cells(), ["1", "0.0 %", "-"]);
        assert_eq!(Tested::default().cells(), ["0", "-", "-"]);
    }
}
