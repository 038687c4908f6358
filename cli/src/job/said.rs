//! What a scheduler has said of a job: by options, or else in the environment of its prologs and epilogs. Pure.

use polymeter_agent::control::{End, Start};
use polymeter_proto::series::Identifier;

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

    /// How it ended, in the scheduler's word.
    #[arg(long, value_name = "WORD")]
    state: Option<String>,

    /// The exit status of its script; without it that of SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER")]
    exit_code: Option<u32>,

    /// The signal that ended its script; without it that of SLURM_JOB_EXIT_CODE2.
    #[arg(long, value_name = "NUMBER")]
    exit_signal: Option<u32>,
}

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
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        Ok(End {
            job: job_id(self.job.as_ref(), environment)?,
            state: self.state.clone(),
            exit_code: self.exit_code.or_else(|| number(code)),
            exit_signal: self.exit_signal.or_else(|| number(signal)),
        })
    }
}

impl Told {
    /// What the agent is to know of the job, and what is wrong with its owner's wishes, which then are left out.
    pub(super) fn start(&self, environment: &impl Environment) -> Result<(Start, Option<String>), Failure> {
        // A list of nodes may be longer than a name. Nobody is to miss a job for that.
        let nameable = |names: &[&str]| {
            environment.first(names).filter(|text| Identifier::try_from(text.as_str()).is_ok())
        };
        let uid = || environment.get("SLURM_JOB_UID").and_then(|text| text.parse().ok());
        let (Wished { plan, duration }, wrong) = match self.wished(environment) {
            Ok(wished) => (wished.unwrap_or_default(), None),
            Err(wrong) => (Wished::default(), Some(wrong)),
        };
        let start = Start {
            job: job_id(self.job.as_ref(), environment)?,
            alias: self.alias.clone().or_else(|| nameable(&["SLURM_JOB_SLUID"])),
            cluster: self.cluster.clone().or_else(|| environment.get("SLURM_CLUSTER_NAME")),
            uid: self.uid.or_else(uid),
            user: self.user.clone().or_else(|| environment.first(&["SLURM_JOB_USER", "OAR_USER"])),
            plan,
            duration,
            account: self.account.clone().or_else(|| nameable(&["SLURM_JOB_ACCOUNT", "OAR_PROJECT_NAME"])),
            queue: self.queue.clone().or_else(|| nameable(&["SLURM_JOB_PARTITION"])),
            nodes: self.nodes.clone().or_else(|| nameable(&["SLURM_NODELIST"])),
            cores: self.cores.or_else(|| cores(&environment.get("SLURM_JOB_CPUS_PER_NODE")?)),
        };
        Ok((start, wrong))
    }

    fn wished(&self, environment: &impl Environment) -> Result<Option<Wished>, String> {
        match (&self.wishes, environment.get("SLURM_JOB_COMMENT")) {
            (Some(text), _) => wishes::parse(text).map(Some),
            (None, Some(comment)) => wishes::in_comment(&comment).map(wishes::parse).transpose(),
            (None, None) => Ok(None),
        }
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
        let (start, wrong) = Told::default().start(&prolog).unwrap();
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("42", Some(1000), Some("zoe")));
        assert_eq!((start.cluster.as_deref(), start.duration.as_deref()), (Some("lab"), Some("1h")));
        assert_eq!((start.account.as_deref(), start.queue.as_deref()), (Some("physics"), Some("long")));
        assert_eq!(start.cores, Some(40));
        assert_eq!((start.plan["cpu.*"].as_str(), wrong), ("10ms", None));
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
        ]));
        let (start, _) = Told::default().start(&odd).unwrap();
        assert_eq!((start.nodes, start.cores), (None, None));
        let end = ToldEnd::default().end(&odd).unwrap();
        assert_eq!((end.exit_code, end.exit_signal), (Some(3), None));
        assert_eq!((cores("4294967295(x2)"), cores("2(x3"), cores("")), (None, None, None));
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
        let (start, wrong) = Told::default().start(&comment).unwrap();
        assert_eq!(start.job, "42");
        assert!(wrong.unwrap().contains("`faster`"));
    }
}
