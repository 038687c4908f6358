//! `polymeter jobs`: the jobs that this node's agent tracks, or stored jobs: those that run on any node, or
//! have ended.

use polymeter_analysis::model::Outcome;
use polymeter_analysis::runs::KEY;
use polymeter_client::commands::jobs::print_tracked;
use polymeter_client::connection::agent::AgentOptions;
use polymeter_client::connection::collector::Collector;
use polymeter_proto::run::Run;
use polymeter_proto::units::seconds_between;
use polymeter_service::clock::realtime_us;
use polymeter_service::time_text::rfc3339;
use polymeter_store::reader::{JobFilter, JobRow};
use serde::Serialize;

use crate::calendar::PointInTime;
use crate::client::read_source::{ReadSource, Visible};
use crate::failure::Failure;
use crate::output::layout::shortened;
use crate::output::table::{elapsed, figure, head, table_shortening};
use crate::output::terminal;
use crate::store_failure::cannot_read;

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    agent: AgentOptions,

    #[command(flatten)]
    stored: StoredJobs,
}

/// Options that choose stored jobs.
#[derive(Debug, clap::Args)]
struct StoredJobs {
    /// List the jobs that run on any node, the one that started last first. Users see their own. Default if
    /// no agent runs here and a collector is configured.
    #[arg(long, group = "stored")]
    running: bool,

    /// List the stored jobs that have ended, the one that started last first. Users see their own.
    #[arg(long, group = "stored")]
    ended: bool,

    /// With --running or --ended: the jobs of this user, by name or numeric id.
    #[arg(long, value_name = "USER", requires = "stored")]
    user: Option<String>,

    /// With --running or --ended: the jobs whose names contain this text, in any case.
    #[arg(long, value_name = "TEXT", requires = "stored")]
    name: Option<String>,

    /// With --running or --ended: the jobs of this account.
    #[arg(long, value_name = "NAME", requires = "stored")]
    account: Option<String>,

    /// With --running or --ended: the jobs of this queue or partition.
    #[arg(long, value_name = "NAME", requires = "stored", visible_alias = "partition")]
    queue: Option<String>,

    /// With --running or --ended: the jobs with this final state, such as FAILED.
    #[arg(long, value_name = "STATE", requires = "stored")]
    state: Option<String>,

    /// With --running or --ended: the jobs that ran on this node.
    #[arg(long, value_name = "NODE", requires = "stored")]
    node: Option<String>,

    /// With --running or --ended: the jobs that ended at this time or later: YYYY-MM-DD or YYYY-MM-DDTHH:MM
    /// in UTC, or an age such as 12h or 7d.
    #[arg(long, value_name = "TIME", requires = "stored")]
    since: Option<PointInTime>,

    /// With --running or --ended: the jobs that started before this time.
    #[arg(long, value_name = "TIME", requires = "stored")]
    until: Option<PointInTime>,

    /// With --running or --ended: at most this number of jobs. Default: 100.
    #[arg(long, value_name = "N", requires = "stored", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,

    #[command(flatten)]
    source: ReadSource,
}

/// Listed without `--limit`.
const LIMIT: u32 = 100;

/// Columns of a command, which may have thousands of characters: the JSON form has all of it.
const COMMAND_COLUMNS: usize = 60;

#[derive(Debug, Serialize)]
struct StoredJob<'a> {
    /// Id as the scheduler prints it.
    job: &'a str,
    job_id: &'a str,
    key: i64,
    name: Option<&'a str>,
    user: Option<&'a str>,
    uid: Option<i64>,
    account: Option<&'a str>,
    queue: Option<&'a str>,
    nodes: &'a [String],
    cores: Option<i64>,
    gpus: Option<i64>,
    state: Option<&'a str>,
    exit_code: Option<i64>,
    exit_signal: Option<i64>,
    run: Option<&'a Run>,
    started: String,
    ended: Option<String>,
    elapsed_s: Option<f64>,
}

impl StoredJobs {
    const fn is_wanted(&self) -> bool {
        self.running || self.ended || self.source.is_given()
    }

    fn filter(&self, now_us: i64) -> JobFilter {
        let owner_uid = self.user.as_ref().and_then(|user| user.parse::<u32>().ok()).map(i64::from);
        JobFilter {
            owner: self.user.clone().filter(|_| owner_uid.is_none()),
            owner_uid,
            name: self.name.clone(),
            account: self.account.clone(),
            queue: self.queue.clone(),
            state: self.state.clone(),
            node: self.node.clone(),
            is_ended: Some(self.ended),
            since_ns: self.since.map(|since| since.time_ns(now_us)),
            until_ns: self.until.map(|until| until.time_ns(now_us)),
            limit: self.limit.unwrap_or(LIMIT),
            ..JobFilter::default()
        }
    }
}

pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    let JobsArguments { agent, stored } = arguments;
    if stored.is_wanted() {
        return print_stored(stored, agent.json);
    }
    match print_tracked(agent) {
        Err(Failure::NotRunning(_)) if agent.is_default() && has_collector() => {
            print_stored(stored, agent.json)
        }
        printed => printed,
    }
}

/// True if a collector is configured, which knows the jobs of all nodes.
fn has_collector() -> bool {
    Collector::find(None, None).is_ok_and(|collector| collector.is_some())
}

fn print_stored(arguments: &StoredJobs, is_json: bool) -> Result<(), Failure> {
    let mut source = arguments.source.open()?;
    let jobs = source.reader.jobs(&arguments.filter(realtime_us()));
    let jobs = jobs.map_err(cannot_read)?;
    if is_json {
        return terminal::print_json(&jobs.iter().map(json).collect::<Vec<_>>());
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&text(&jobs, source.visible, limit, (!arguments.ended).then(realtime_us)))
}

/// Name of a job, else the command of a run.
fn name(job: &JobRow) -> Option<String> {
    let command = || job.run.as_ref()?.command_line();
    job.name.clone().or_else(|| command().map(|command| shortened(&command, COMMAND_COLUMNS)))
}

/// Final state with the exit status or signal, unless that says no more.
fn final_state(job: &JobRow) -> Option<String> {
    let state = job.state.as_deref();
    if state.is_some_and(Outcome::is_cause) {
        return job.state.clone();
    }
    match (job.exit_code, job.exit_signal) {
        (_, Some(signal)) if signal > 0 => Some(format!("{}, signal {signal}", state.unwrap_or("ended"))),
        (Some(code), _) if code != 0 => Some(format!("{}, exit {code}", state.unwrap_or("ended"))),
        _ => job.state.clone(),
    }
}

fn shown_id(job: &JobRow) -> &str {
    job.display_id.as_deref().unwrap_or(&job.job_id)
}

fn json(job: &JobRow) -> StoredJob<'_> {
    StoredJob {
        job: shown_id(job),
        job_id: &job.job_id,
        key: job.job_key,
        name: job.name.as_deref(),
        user: job.owner.as_deref(),
        uid: job.owner_uid,
        account: job.account.as_deref(),
        queue: job.queue.as_deref(),
        nodes: &job.nodes,
        cores: job.cores,
        gpus: job.gpus,
        state: job.state.as_deref(),
        exit_code: job.exit_code,
        exit_signal: job.exit_signal,
        run: job.run.as_deref(),
        started: rfc3339(job.started_ns / 1000),
        ended: job.ended_ns.map(|ended_ns| rfc3339(ended_ns / 1000)),
        elapsed_s: job.ended_ns.map(|ended_ns| seconds_between(job.started_ns, ended_ns)),
    }
}

/// Shows the time from the start of running jobs until `now_us`.
fn text(jobs: &[JobRow], visible: Visible, limit: Option<usize>, now_us: Option<i64>) -> String {
    if jobs.is_empty() {
        let of_user = if visible == Visible::Own { "none of your jobs" } else { "no job" };
        let state = if now_us.is_some() { "runs" } else { "has ended" };
        return format!("{of_user} {state} that matches\n");
    }
    let text = |known: &Option<String>| figure(known.as_deref(), str::to_owned);
    let time = if now_us.is_some() { "STARTED (UTC)" } else { "ENDED (UTC)" };
    let mut rows = vec![head(["JOB", "NAME", "USER", "QUEUE", "NODES", "STATE", time, "ELAPSED"])];
    for job in jobs {
        let owner = job.owner.clone().or_else(|| job.owner_uid.map(|uid| uid.to_string()));
        let state = match (&job.state, job.lost_nodes.is_empty()) {
            (None, false) => "lost".to_owned(),
            (None, true) if now_us.is_some() => "running".to_owned(),
            _ => text(&final_state(job)),
        };
        let shown_ns = if now_us.is_some() { Some(job.started_ns) } else { job.ended_ns };
        let until_ns = job.ended_ns.or(now_us.map(|now_us| now_us.saturating_mul(1000)));
        rows.push(vec![
            // Another run, or a job of another cluster.
            match jobs.iter().filter(|other| shown_id(other) == shown_id(job)).count() {
                1 => shown_id(job).to_owned(),
                _ => format!("{} {KEY}{}", shown_id(job), job.job_key),
            },
            text(&name(job)),
            text(&owner),
            text(&job.queue),
            job.nodes.len().to_string(),
            state,
            figure(shown_ns, minute),
            figure(until_ns, |until_ns| elapsed((until_ns - job.started_ns) / 1000)),
        ]);
    }
    table_shortening(&rows, limit, &["NAME", "QUEUE"])
}

fn minute(time_ns: i64) -> String {
    let text = rfc3339(time_ns / 1000);
    text.chars().skip(5).take(11).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot;

    /// 2026-11-22T14:30:00Z.
    const START_NS: i64 = 1_795_357_800_000_000_000;

    fn job(id: &str, seconds: i64, more: serde_json::Value) -> JobRow {
        let mut job = json!({
            "job_key": 1, "job_id": id, "started_ns": START_NS, "ended_ns": START_NS + seconds * 1_000_000_000,
            "sampled_ns": {"start": 0, "end": 9}, "lost_nodes": [], "nodes": ["n1", "n2"],
        });
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn ended_jobs_are_laid_out_as_recorded() {
        let jobs = [
            job(
                "4010",
                93_784,
                json!({"display_id": "4009_1", "name": "lattice-boltzmann", "owner": "zoe", "account": "physics",
                    "queue": "long", "state": "COMPLETED"}),
            ),
            job("4008", 59, json!({"owner_uid": 1000, "queue": "short", "state": "OUT_OF_MEMORY"})),
            job("4007", 3_600, json!({"lost_nodes": ["n2"]})),
        ];
        snapshot::check("jobs-ended", &text(&jobs, Visible::All, Some(80), None));
        let widest = text(&jobs, Visible::All, Some(80), None).lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 80);
        assert_eq!(text(&[], Visible::Own, None, None), "none of your jobs has ended that matches\n");
        let value = serde_json::to_value(super::json(&jobs[0])).unwrap();
        assert_eq!((&value["job"], &value["job_id"]), (&json!("4009_1"), &json!("4010")));
        assert_eq!(value["ended"], json!("2026-11-23T16:33:04.000000Z"));
        assert_eq!(value["elapsed_s"], json!(93_784.0));
    }

    /// What one types or compares is whole beside long names.
    #[test]
    fn long_names_leave_ids_and_times_whole() {
        for name in ["n".repeat(200), "平均場近似".repeat(40)] {
            let more = json!({"name": name, "owner": "zoe", "state": "COMPLETED"});
            let jobs = [job("run-22942-1795823786", 3_600, more)];
            let text = text(&jobs, Visible::All, Some(80), None);
            assert!(text.lines().all(|line| crate::output::layout::width(line) <= 80), "{text}");
            for whole in ["run-22942-1795823786", "11-22 15:30", "01:00:00", "COMPLETED", "…"] {
                assert!(text.contains(whole), "{whole}: {text}");
            }
        }
    }

    #[test]
    fn a_long_command_makes_no_other_row_wider() {
        let command = |words: &[&str]| json!({"run": {"command": words}});
        let script = "x".repeat(2_000);
        let jobs = [job("1", 60, command(&["sh", "-c", &script])), job("2", 60, command(&["true"]))];
        let text = text(&jobs, Visible::All, None, None);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width < 2 * COMMAND_COLUMNS), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        let begin = format!("1    sh -c {}…  ", "x".repeat(COMMAND_COLUMNS - 7));
        assert!(text.contains(&begin) && text.contains("\n2    true  "), "{text}");
    }

    #[test]
    fn running_jobs_have_the_time_since_their_start() {
        let mut jobs = [job("4011", 0, json!({"name": "train", "owner": "zoe", "queue": "gpu"}))];
        jobs[0].ended_ns = None;
        let now_us = START_NS / 1000 + 3_725_000_000;
        snapshot::check("jobs-running", &text(&jobs, Visible::Own, Some(80), Some(now_us)));
        assert_eq!(text(&[], Visible::All, None, Some(0)), "no job runs that matches\n");
    }
}
