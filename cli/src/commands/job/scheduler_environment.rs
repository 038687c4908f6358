//! What a scheduler has said of a job: by options, or else in the environment of its prologs and epilogs. Pure.

use polymeter_agent::control::{End, Start};
use polymeter_proto::series::{Identifier, InvalidIdentifier};
use polymeter_proto::text::Text;

use super::wishes::{self, Wished};
use crate::failure::Failure;

/// What tells of a job where no option does.
pub(super) trait Environment {
    /// A variable that is set, and not empty.
    fn get(&self, name: &str) -> Option<String>;

    /// The first of these that is set.
    fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.get(name))
    }
}

/// The environment of this process.
pub(super) struct Process;

impl Environment for Process {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }
}

/// What options say of a job. Without them the environment of Slurm's and OAR's scripts does.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Told {
    /// The job's id; without it SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Another name of the job, which its cgroups carry instead of its id; without it SLURM_JOB_SLUID.
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,

    /// The cluster; without it SLURM_CLUSTER_NAME.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The owner's numeric id; without it SLURM_JOB_UID.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,

    /// The owner's name; without it SLURM_JOB_USER or OAR_USER.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// What the owner wishes to be sampled: 'cpu.*=10ms, perf.instructions=100ms for 1h'; without it what stands behind
    /// `polymeter:` in SLURM_JOB_COMMENT.
    #[arg(long, value_name = "TEXT")]
    wishes: Option<String>,

    /// The account or project that the job is charged to; without it SLURM_JOB_ACCOUNT or OAR_PROJECT_NAME.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// The queue or partition that it was submitted to; without it SLURM_JOB_PARTITION.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Its nodes, as the scheduler writes them; without it SLURM_NODELIST.
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,

    /// How many cores it has on all nodes; without it what SLURM_JOB_CPUS_PER_NODE adds up to.
    #[arg(long, value_name = "NUMBER")]
    cores: Option<u32>,
}

/// What options say of a job's end. Without them the environment of Slurm's epilog does.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ToldEnd {
    /// The job's id; without it SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// How it ended, in the scheduler's word; without it OUT_OF_MEMORY where SLURM_JOB_EXIT_CODE2 says so.
    #[arg(long, value_name = "WORD")]
    state: Option<String>,

    /// The exit status of its script; without it that of SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER")]
    exit_code: Option<u32>,

    /// The signal that ended its script; without it that of SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER")]
    exit_signal: Option<u32>,
}

/// How a job ended, as the controller of the scheduler knows it.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ToldState {
    /// The job's id; without it SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The cluster; without it SLURM_CLUSTER_NAME, or any.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// How it ended, in the scheduler's word: COMPLETED, TIMEOUT.
    #[arg(long, value_name = "WORD")]
    state: String,

    /// The exit status of its script.
    #[arg(long, value_name = "NUMBER")]
    exit_code: Option<u32>,

    /// The signal that ended its script.
    #[arg(long, value_name = "NUMBER")]
    exit_signal: Option<u32>,
}

impl ToldState {
    /// The line for the collector.
    pub(super) fn line(&self, environment: &impl Environment) -> Result<String, Failure> {
        let cluster = self.cluster.clone().or_else(|| environment.get("SLURM_CLUSTER_NAME"));
        let mut line = serde_json::json!({
            "verb": "state",
            "job": job_id(self.job.as_ref(), environment)?,
            "cluster": cluster,
            "state": self.state,
            "exit_code": self.exit_code,
            "exit_signal": self.exit_signal,
        });
        if let Some(fields) = line.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(line.to_string())
    }
}

/// The signal under which Slurm reports that a job ran out of memory (its SIG_OOM, 253, without the bit of a core dump), and
/// its word for that.
const OUT_OF_MEMORY: (u32, &str) = (125, "OUT_OF_MEMORY");

/// The job that is meant.
fn job_id(told: Option<&String>, environment: &impl Environment) -> Result<String, Failure> {
    let in_environment = || environment.first(&["SLURM_JOB_ID", "OAR_JOB_ID", "OAR_JOBID"]);
    told.cloned().or_else(in_environment).ok_or_else(|| {
        Failure::Usage(
            "which job? --job ID says it, or SLURM_JOB_ID or OAR_JOB_ID in the environment".to_owned(),
        )
    })
}

/// The cores on all nodes, as Slurm writes those on each: `16(x2),8`.
fn cores(per_node: &str) -> Option<u32> {
    let of_part = |part: &str| match part.split_once("(x") {
        None => part.parse::<u32>().ok(),
        Some((cores, nodes)) => {
            cores.parse::<u32>().ok()?.checked_mul(nodes.strip_suffix(')')?.parse().ok()?)
        }
    };
    per_node.split(',').try_fold(0_u32, |sum, part| sum.checked_add(of_part(part)?))
}

impl ToldEnd {
    /// What the agent is to know of the job's end.
    pub(super) fn end(&self, environment: &impl Environment) -> Result<End, Failure> {
        let status = environment.get("SLURM_JOB_EXIT_CODE2");
        let (code, signal) = status.as_deref().and_then(|status| status.split_once(':')).unzip();
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
        // To slurmd a job that was cancelled or reached its time limit looks like one that succeeded: 0:0 says nothing.
        let is_known = (number(code), number(signal)) != (Some(0), Some(0));
        let (code, signal) = (number(code).filter(|_| is_known), number(signal).filter(|_| is_known));
        let (exit_code, exit_signal) = (self.exit_code.or(code), self.exit_signal.or(signal));
        let killed = (exit_signal == Some(OUT_OF_MEMORY.0)).then(|| OUT_OF_MEMORY.1.to_owned());
        Ok(End {
            job: job_id(self.job.as_ref(), environment)?,
            state: self.state.clone().or(killed),
            exit_code,
            exit_signal,
        })
    }
}

impl Told {
    /// What the agent is to know of the job, and which variables are left out because they cannot be names: nobody is to
    /// miss a job for that.
    pub(super) fn start(&self, environment: &impl Environment) -> Result<(Start, Vec<String>), Failure> {
        let mut left_out = Vec::new();
        let mut nameable = |names: &[&str]| {
            let (name, text) = names.iter().find_map(|name| Some((*name, environment.get(name)?)))?;
            match Identifier::try_from(text.as_str()) {
                Ok(_) => return Some(text),
                // As lists of nodes are that are longer than a name.
                Err(InvalidIdentifier::TooLong { .. }) => {}
                Err(error) => left_out.push(format!("cannot use {name}: {error}")),
            }
            None
        };
        let uid = || environment.get("SLURM_JOB_UID").and_then(|text| text.parse().ok());
        let request = self.request(environment);
        let (Wished { plan, duration }, error) = match request.as_deref().map(wishes::parse).transpose() {
            Ok(wished) => (wished.unwrap_or_default(), None),
            Err(wrong) => (Wished::default(), Some(wrong)),
        };
        let start = Start {
            job: job_id(self.job.as_ref(), environment)?,
            alias: self.alias.clone().or_else(|| nameable(&["SLURM_JOB_SLUID"])),
            cluster: self.cluster.clone().or_else(|| nameable(&["SLURM_CLUSTER_NAME"])),
            uid: self.uid.or_else(uid),
            user: self.user.clone().or_else(|| nameable(&["SLURM_JOB_USER", "OAR_USER"])),
            plan,
            duration,
            // The agent keeps it for the owner to see.
            request: request.filter(|_| error.is_some()).map(|text| Text::of(&text).to_string()),
            request_error: error,
            account: self.account.clone().or_else(|| nameable(&["SLURM_JOB_ACCOUNT", "OAR_PROJECT_NAME"])),
            queue: self.queue.clone().or_else(|| nameable(&["SLURM_JOB_PARTITION"])),
            nodes: self.nodes.clone().or_else(|| nameable(&["SLURM_NODELIST"])),
            cores: self.cores.or_else(|| cores(&environment.get("SLURM_JOB_CPUS_PER_NODE")?)),
        };
        Ok((start, left_out))
    }

    /// What the owner requested, as it was written.
    fn request(&self, environment: &impl Environment) -> Option<String> {
        let in_comment = || wishes::in_comment(&environment.get("SLURM_JOB_COMMENT")?).map(str::to_owned);
        self.wishes.clone().or_else(in_comment)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Fixed(BTreeMap<&'static str, &'static str>);

    impl Environment for Fixed {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|text| (*text).to_owned())
        }
    }

    #[test]
    fn slurm_says_all_of_it() {
        let prolog = Fixed(BTreeMap::from([
            ("SLURM_JOB_ID", "42"),
            ("SLURM_JOB_UID", "1000"),
            ("SLURM_JOB_USER", "zoe"),
            ("SLURM_CLUSTER_NAME", "lab"),
            ("SLURM_JOB_ACCOUNT", "physics"),
            ("SLURM_JOB_PARTITION", "long"),
            ("SLURM_JOB_CPUS_PER_NODE", "16(x2),8"),
            ("SLURM_JOB_COMMENT", "for the paper; polymeter: cpu.*=10ms for 1h"),
        ]));
        let (start, left_out) = Told::default().start(&prolog).unwrap();
        assert_eq!(left_out, [""; 0]);
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("42", Some(1000), Some("zoe")));
        assert_eq!((start.cluster.as_deref(), start.duration.as_deref()), (Some("lab"), Some("1h")));
        assert_eq!((start.account.as_deref(), start.queue.as_deref()), (Some("physics"), Some("long")));
        assert_eq!(start.cores, Some(40));
        assert_eq!((start.plan["cpu.*"].as_str(), start.request_error), ("10ms", None));
        let options = Told { job: Some("43".to_owned()), uid: Some(7), ..Told::default() };
        let (start, _) = options.start(&prolog).unwrap();
        assert_eq!((start.job.as_str(), start.uid), ("43", Some(7)));
    }

    #[test]
    fn what_cannot_be_a_name_or_a_number_is_left_out() {
        let long = Box::leak("n1,".repeat(100).into_boxed_str());
        let odd = Fixed(BTreeMap::from([
            ("SLURM_JOB_ID", "42"),
            ("SLURM_NODELIST", &*long),
            ("SLURM_JOB_CPUS_PER_NODE", "many"),
            ("SLURM_JOB_EXIT_CODE2", "3:0:1"),
            ("SLURM_JOB_ACCOUNT", "a\u{202e}b"),
            ("SLURM_CLUSTER_NAME", " "),
        ]));
        let (start, left_out) = Told::default().start(&odd).unwrap();
        assert_eq!((start.nodes, start.cores, start.account, start.cluster), (None, None, None, None));
        let cluster = "cannot use SLURM_CLUSTER_NAME: it is blank";
        let account = "cannot use SLURM_JOB_ACCOUNT: it has the character U+202E, a character that turns the direction of writing";
        assert_eq!(left_out, [cluster, account]);
        let end = ToldEnd::default().end(&odd).unwrap();
        assert_eq!((end.exit_code, end.exit_signal), (Some(3), None));
        assert_eq!((cores("4294967295(x2)"), cores("2(x3"), cores("")), (None, None, None));
    }

    #[test]
    fn an_epilog_tells_what_it_knows_and_no_success() {
        let end = |status: &'static str| {
            let epilog = Fixed(BTreeMap::from([("SLURM_JOB_ID", "42"), ("SLURM_JOB_EXIT_CODE2", status)]));
            let end = ToldEnd::default().end(&epilog).unwrap();
            (end.state, end.exit_code, end.exit_signal)
        };
        assert_eq!(end("0:0"), (None, None, None), "cancelled, timed out, or completed: nobody knows");
        assert_eq!(end("3:0"), (None, Some(3), Some(0)));
        assert_eq!(end("0:9"), (None, Some(0), Some(9)));
        assert_eq!(end("0:125"), (Some("OUT_OF_MEMORY".to_owned()), Some(0), Some(125)));
        let told = ToldEnd { state: Some("COMPLETED".to_owned()), exit_code: Some(0), ..ToldEnd::default() };
        let epilog = Fixed(BTreeMap::from([("SLURM_JOB_ID", "42"), ("SLURM_JOB_EXIT_CODE2", "0:0")]));
        assert_eq!(told.end(&epilog).unwrap().exit_code, Some(0), "what is said is believed");
    }

    #[test]
    fn a_controller_tells_the_state() {
        let epilog = Fixed(BTreeMap::from([("SLURM_JOB_ID", "42"), ("SLURM_CLUSTER_NAME", "lab")]));
        let told = ToldState {
            state: "TIMEOUT".to_owned(),
            exit_code: Some(0),
            exit_signal: Some(15),
            ..ToldState::default()
        };
        let line: serde_json::Value = serde_json::from_str(&told.line(&epilog).unwrap()).unwrap();
        let expected = serde_json::json!({"verb": "state", "job": "42", "cluster": "lab", "state": "TIMEOUT",
                                          "exit_code": 0, "exit_signal": 15});
        assert_eq!(line, expected);
    }

    #[test]
    fn oar_says_some_of_it_and_nobody_nothing() {
        let prologue = Fixed(BTreeMap::from([("OAR_JOB_ID", "7"), ("OAR_USER", "zoe")]));
        let (start, _) = Told::default().start(&prologue).unwrap();
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("7", None, Some("zoe")));
        assert!(matches!(Told::default().start(&Fixed(BTreeMap::new())), Err(Failure::Usage(_))));
    }

    #[test]
    fn bad_wishes_leave_the_rest() {
        let comment =
            Fixed(BTreeMap::from([("SLURM_JOB_ID", "42"), ("SLURM_JOB_COMMENT", "polymeter: faster")]));
        let (start, _) = Told::default().start(&comment).unwrap();
        assert_eq!((start.job.as_str(), start.request.as_deref()), ("42", Some("faster")));
        assert!(start.request_error.unwrap().contains("`faster`"));
    }
}
