//! `polymeter jobs`: the jobs that this node's agent tracks. The command of the full program lists stored
//! jobs, too.

use polymeter_proto::control::{JobsRequest, Request, SubjectStatus};
use polymeter_proto::ledger::Tally;

use crate::connection::agent::{AgentOptions, ask_status};
use crate::failure::Failure;
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;

pub fn print_tracked(agent: &AgentOptions) -> Result<(), Failure> {
    let mut status = ask_status(&agent.socket, &Request::Jobs(JobsRequest {}))?;
    status.subjects.retain(|subject| subject.job.is_some());
    if agent.json {
        terminal::print_json(&status.subjects)
    } else {
        terminal::print(&text(&status.subjects, terminal::width_limit(&std::io::stdout())))
    }
}

fn text(jobs: &[SubjectStatus], limit: Option<usize>) -> String {
    if jobs.is_empty() {
        return "no job is tracked on this node\n".to_owned();
    }
    let mut rows = vec![head(["JOB", "OWNER", "SOURCES", "SAMPLES", "MISSED"])];
    for job in jobs {
        let owner = job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string()));
        let sum = |count: fn(&Tally) -> u64| {
            job.sources.iter().map(|source| count(&source.tally)).sum::<u64>().to_string()
        };
        rows.push(vec![
            job.job.clone().unwrap_or_default(),
            figure(owner, |owner| owner),
            job.sources.len().to_string(),
            sum(|tally| tally.taken),
            sum(|tally| tally.missed),
        ]);
    }
    table_within(&rows, limit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot;

    #[test]
    fn jobs_are_laid_out_as_recorded() {
        let tally =
            json!({"due": 12, "taken": 11, "late": 0, "missed": 1, "absent": 0, "dropped": 0, "not_kept": 0});
        let source =
            json!({"name": "v2/cpu.stat", "tally": tally, "reads": 11, "read_mean_ns": 1, "read_max_ns": 2});
        let job = |id: &str, user: Option<&str>, uid: Option<u32>| json!({"job": id, "uid": uid, "user": user, "started_us": 1, "cgroups": [], "sources": [source, source], "unavailable": []});
        let jobs =
            json!([job("42", Some("zoe"), Some(1000)), job("43", None, Some(1001)), job("44", None, None)]);
        let jobs: Vec<SubjectStatus> = serde_json::from_value(jobs).unwrap();
        snapshot::check("jobs", &text(&jobs, None));
        assert_eq!(text(&[], None), "no job is tracked on this node\n");
    }
}
