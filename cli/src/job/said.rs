//! What a scheduler has said of a job: by options, or else in the environment of its prologs and epilogs. Pure.

use polymeter_agent::control::Start;

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

    /// Another name of the job, which its cgroups carry instead of its id, such as Slurm's SLUID.
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
}

impl Told {
    /// The job that is meant.
    pub(super) fn job_id(&self, environment: &impl Environment) -> Result<String, Failure> {
        let told = || environment.first(&["SLURM_JOB_ID", "OAR_JOB_ID", "OAR_JOBID"]);
        self.job.clone().or_else(told).ok_or_else(|| {
            Failure::Usage(
                "which job? --job ID says it, or SLURM_JOB_ID or OAR_JOB_ID in the environment".to_owned(),
            )
        })
    }

    /// What the agent is to know of the job, and what is wrong with its owner's wishes, which then are left out.
    pub(super) fn start(&self, environment: &impl Environment) -> Result<(Start, Option<String>), Failure> {
        let uid = || environment.get("SLURM_JOB_UID").and_then(|text| text.parse().ok());
        let (Wished { plan, duration }, wrong) = match self.wished(environment) {
            Ok(wished) => (wished.unwrap_or_default(), None),
            Err(wrong) => (Wished::default(), Some(wrong)),
        };
        let start = Start {
            job: self.job_id(environment)?,
            alias: self.alias.clone(),
            cluster: self.cluster.clone().or_else(|| environment.get("SLURM_CLUSTER_NAME")),
            uid: self.uid.or_else(uid),
            user: self.user.clone().or_else(|| environment.first(&["SLURM_JOB_USER", "OAR_USER"])),
            plan,
            duration,
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
            ("SLURM_JOB_COMMENT", "for the paper; polymeter: cpu.*=10ms for 1h"),
        ]));
        let (start, wrong) = Told::default().start(&prolog).unwrap();
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("42", Some(1000), Some("zoe")));
        assert_eq!((start.cluster.as_deref(), start.duration.as_deref()), (Some("lab"), Some("1h")));
        assert_eq!((start.plan["cpu.*"].as_str(), wrong), ("10ms", None));
        let options = Told { job: Some("43".to_owned()), uid: Some(7), ..Told::default() };
        let (start, _) = options.start(&prolog).unwrap();
        assert_eq!((start.job.as_str(), start.uid), ("43", Some(7)));
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
