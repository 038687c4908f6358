//! Environment of a scheduler's scripts. Pure, except for [`ProcessEnvironment`].

use std::os::unix::ffi::OsStrExt;

use polymeter_proto::text::escape;

use crate::failure::Failure;

pub(super) trait SchedulerEnvironment {
    /// None if the variable is not set or empty.
    fn get(&self, name: &str) -> Option<String>;

    /// Like [`Self::get`], but printable.
    fn printable(&self, name: &str) -> Option<String> {
        self.get(name).map(|text| escape(text.as_bytes().trim_ascii()))
    }
}

pub(super) struct ProcessEnvironment;

impl SchedulerEnvironment for ProcessEnvironment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }

    fn printable(&self, name: &str) -> Option<String> {
        std::env::var_os(name)
            .filter(|text| !text.is_empty())
            .map(|text| escape(text.as_bytes().trim_ascii()))
    }
}

/// Prefers an option to the scheduler's variables.
pub(super) fn job_id(
    option: Option<&String>,
    environment: &impl SchedulerEnvironment,
) -> Result<String, Failure> {
    let of_scheduler =
        || ["SLURM_JOB_ID", "OAR_JOB_ID", "OAR_JOBID"].iter().find_map(|name| environment.get(name));
    option.cloned().or_else(of_scheduler).ok_or_else(|| {
        Failure::Usage(
            "cannot determine the job: neither SLURM_JOB_ID nor OAR_JOB_ID is set; name it with --job ID"
                .to_owned(),
        )
    })
}

#[cfg(test)]
pub(super) mod fixed {
    use std::collections::BTreeMap;

    use super::SchedulerEnvironment;

    pub(crate) struct FixedEnvironment(BTreeMap<&'static str, &'static str>);

    impl FixedEnvironment {
        pub(crate) fn new<const COUNT: usize>(variables: [(&'static str, &'static str); COUNT]) -> Self {
            Self(BTreeMap::from(variables))
        }
    }

    impl SchedulerEnvironment for FixedEnvironment {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|text| (*text).to_owned())
        }
    }
}
