//! Name and requested resources of a job, as a scheduler's scripts report them.

use polymeter_proto::ledger::JobDetails;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;

use super::environment::SchedulerEnvironment;
use super::said::{self, Said, Tres, printable};

/// Options that describe a job's name and its requested resources. Their defaults are variables of Slurm's
/// and OAR's scripts.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct DetailOptions {
    /// The job's name. Default: SLURM_JOB_NAME or OAR_JOB_NAME.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) name: Option<String>,

    /// The job's id as the scheduler prints it, such as 4009_1. Default: composed of SLURM_ARRAY_JOB_ID and
    /// SLURM_ARRAY_TASK_ID, or SLURM_HET_JOB_ID and SLURM_HET_JOB_OFFSET.
    #[arg(long, value_name = "ID", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) display_id: Option<String>,

    /// The time limit: seconds, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES,
    /// DAYS-HOURS:MINUTES:SECONDS or UNLIMITED. Default: OAR_JOB_WALLTIME_SECONDS.
    #[arg(long, value_name = "TIME", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) time_limit: Option<String>,

    /// The resources of the whole job in Slurm's notation, from which cores, memory and GPUs are taken:
    /// cpu=8,mem=32G,node=2,gres/gpu=4.
    #[arg(long, value_name = "LIST", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) tres: Option<String>,

    /// The memory requested on each node: bytes, or a number with K, M, G, T, P or E. Default: from --tres.
    #[arg(long, value_name = "SIZE", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) memory: Option<String>,

    /// The number of GPUs on all nodes. Default: from --tres.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) gpus: Option<String>,

    /// The number of times that the scheduler started the job again. Default: SLURM_JOB_RESTART_COUNT.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    pub(super) restarts: Option<String>,
}

impl DetailOptions {
    /// Also reads the number of cores on all nodes that `--tres` states.
    pub(super) fn details(
        &self,
        said: &mut Said<'_, impl SchedulerEnvironment>,
    ) -> (JobDetails, Option<u32>) {
        let composed = composed_id(said.environment);
        let display_id = self.display_id.as_ref().or(composed.as_ref());
        let tres = self.tres.as_deref().unwrap_or_default();
        let Tres { memory_bytes_per_node, gpus, cores } = Tres::read("--tres", tres, &mut said.unread);
        let name = self.name.clone().or_else(|| {
            ["SLURM_JOB_NAME", "OAR_JOB_NAME"].iter().find_map(|name| said.environment.printable(name))
        });
        let time_limit = ("--time-limit", self.time_limit.as_ref());
        let time_limit_s = said.read(time_limit, &["OAR_JOB_WALLTIME_SECONDS"], said::time_limit_s);
        let memory = said.read(("--memory", self.memory.as_ref()), &[], said::memory);
        let restarts = ("--restarts", self.restarts.as_ref());
        let details = JobDetails {
            name: name.filter(|name| !name.trim().is_empty()).map(|name| Text::of(&name)),
            display_id: said.name(("--display-id", display_id), &[]),
            time_limit_s: time_limit_s.flatten(),
            memory_bytes: memory.or(memory_bytes_per_node),
            gpus: said.read(("--gpus", self.gpus.as_ref()), &[], said::number).or(gpus),
            restarts: said.read(restarts, &["SLURM_JOB_RESTART_COUNT"], said::number),
            scheduler: scheduler(said.environment),
            ..JobDetails::default()
        };
        (details, cores)
    }
}

fn scheduler(environment: &impl SchedulerEnvironment) -> Option<Identifier> {
    let schedulers = [("SLURM_JOB_ID", "slurm"), ("OAR_JOB_ID", "oar"), ("OAR_JOBID", "oar")];
    let (_, name) = schedulers.into_iter().find(|(variable, _)| environment.get(variable).is_some())?;
    Identifier::try_from(name).ok()
}

/// Id of a task of an array, or of a component of a heterogeneous job.
fn composed_id(environment: &impl SchedulerEnvironment) -> Option<String> {
    let composed = |job: &str, separator: &str, part: &str| {
        Some(format!("{}{separator}{}", environment.printable(job)?, environment.printable(part)?))
    };
    composed("SLURM_ARRAY_JOB_ID", "_", "SLURM_ARRAY_TASK_ID")
        .or_else(|| composed("SLURM_HET_JOB_ID", "+", "SLURM_HET_JOB_OFFSET"))
}

#[cfg(test)]
mod tests {
    use super::super::environment::fixed::FixedEnvironment;
    use super::super::said::Unread;
    use super::*;

    fn read(options: &DetailOptions, environment: &FixedEnvironment) -> (JobDetails, Option<String>) {
        let mut said = Said { environment, unread: Unread::default() };
        let (details, _) = options.details(&mut said);
        (details, said.unread.texts())
    }

    #[test]
    fn slurms_controller_describes_a_task_of_an_array() {
        let controller = FixedEnvironment::new([
            ("SLURM_JOB_NAME", "solver; rm -rf \"$HOME\""),
            ("SLURM_ARRAY_JOB_ID", "4009"),
            ("SLURM_ARRAY_TASK_ID", "1"),
            ("SLURM_JOB_RESTART_COUNT", "2"),
        ]);
        let options = DetailOptions {
            time_limit: Some("1-02:03:04".to_owned()),
            tres: Some("cpu=8,mem=3.50G,node=2,billing=8,gres/gpu=4,gres/gpu:a100=4".to_owned()),
            ..DetailOptions::default()
        };
        let (details, unread) = read(&options, &controller);
        assert_eq!(unread, None);
        assert_eq!(details.name.unwrap().to_string(), "solver; rm -rf \"$HOME\"");
        assert_eq!(details.display_id.unwrap().as_str(), "4009_1");
        assert_eq!((details.time_limit_s, details.gpus, details.restarts), (Some(93_784), Some(4), Some(2)));
        assert_eq!(details.memory_bytes, Some(7 << 28));
    }

    #[test]
    fn a_component_of_a_heterogeneous_job_has_slurms_id() {
        let component = FixedEnvironment::new([("SLURM_HET_JOB_ID", "4009"), ("SLURM_HET_JOB_OFFSET", "1")]);
        let (details, _) = read(&DetailOptions::default(), &component);
        assert_eq!(details.display_id.unwrap().as_str(), "4009+1");
        let (details, unread) = read(&DetailOptions::default(), &FixedEnvironment::new([]));
        assert!(details.is_empty() && unread.is_none());
    }

    #[test]
    fn a_field_that_cannot_be_read_costs_no_other() {
        let environment = FixedEnvironment::new([
            ("SLURM_ARRAY_JOB_ID", "a\u{202e}"),
            ("SLURM_ARRAY_TASK_ID", "1"),
            ("SLURM_JOB_NAME", "invalid"),
            ("SLURM_JOB_RESTART_COUNT", "twice"),
        ]);
        let some = |text: &str| Some(text.to_owned());
        let options = DetailOptions {
            time_limit: some("soon"),
            tres: some("mem,node=2,gres/gpu:h100=x"),
            memory: some("-1G"),
            gpus: some("3"),
            ..Default::default()
        };
        let (details, unread) = read(&options, &environment);
        assert_eq!((details.time_limit_s, details.memory_bytes, details.gpus), (None, None, Some(3)));
        assert_eq!(details.display_id.unwrap().as_str(), r"a\xe2\x80\xae_1");
        assert_eq!(details.name.unwrap().as_str(), "invalid");
        let unread = unread.unwrap();
        for text in [
            "--tres mem;",
            "--tres gres/gpu:h100=x",
            "--time-limit soon",
            "--memory -1G",
            "RESTART_COUNT twice",
        ] {
            assert!(unread.contains(text), "{unread}");
        }
        let not_set = DetailOptions { time_limit: some("NOT_SET"), memory: some(""), ..Default::default() };
        let (details, unread) = read(&not_set, &FixedEnvironment::new([]));
        assert!(details.is_empty() && unread.is_none(), "{details:?} {unread:?}");
    }
}
