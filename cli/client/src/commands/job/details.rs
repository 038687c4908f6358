//! The name and the requested resources of a job, as a scheduler's scripts report them.

use polymeter_proto::ledger::JobDetails;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;

use super::environment::SchedulerEnvironment;
use crate::failure::Failure;

/// Options that describe a job's name and its requested resources. Their defaults are variables of Slurm's
/// and OAR's scripts.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct DetailOptions {
    /// The job's name. Default: SLURM_JOB_NAME or OAR_JOB_NAME.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The job's id as the scheduler prints it, such as 4009_1. Default: composed of SLURM_ARRAY_JOB_ID and
    /// SLURM_ARRAY_TASK_ID, or SLURM_HET_JOB_ID and SLURM_HET_JOB_OFFSET.
    #[arg(long, value_name = "ID")]
    display_id: Option<String>,

    /// The time limit: seconds, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS:MINUTES:SECONDS or
    /// UNLIMITED. Default: OAR_JOB_WALLTIME_SECONDS.
    #[arg(long, value_name = "TIME")]
    time_limit: Option<String>,

    /// The resources of the whole job in Slurm's notation, from which memory and GPUs are taken:
    /// cpu=8,mem=32G,node=2,gres/gpu=4.
    #[arg(long, value_name = "LIST")]
    tres: Option<String>,

    /// The memory requested on each node: bytes, or a number with K, M, G or T. Default: from --tres.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    /// The number of GPUs on all nodes. Default: from --tres.
    #[arg(long, value_name = "NUMBER")]
    gpus: Option<u32>,

    /// The number of times that the scheduler started the job again. Default: SLURM_JOB_RESTART_COUNT.
    #[arg(long, value_name = "NUMBER")]
    restarts: Option<u32>,
}

impl DetailOptions {
    /// Returns the details, and a warning for each variable that is ignored because it is not a valid name.
    ///
    /// # Errors
    /// Returns an error if an option is invalid.
    pub(super) fn details(
        &self,
        environment: &impl SchedulerEnvironment,
    ) -> Result<(JobDetails, Vec<String>), Failure> {
        let mut warnings = Vec::new();
        let mut variable = |name: &str, text: String| {
            Identifier::try_from(text.as_str())
                .map_err(|error| warnings.push(format!("cannot use {name}: {error}")))
                .ok()
        };
        let name =
            || ["SLURM_JOB_NAME", "OAR_JOB_NAME"].iter().find_map(|variable| environment.get(variable));
        let display_id = match &self.display_id {
            Some(id) => Some(option("--display-id", id)?),
            None => composed_id(environment).and_then(|id| variable("SLURM_ARRAY_TASK_ID", id)),
        };
        let invalid = |name: &str, text: &str| Failure::Usage(format!("invalid value '{text}' for {name}"));
        let time_limit_s = match self.time_limit.as_deref() {
            Some(text) => time_limit_s(text).ok_or_else(|| invalid("--time-limit", text))?,
            None => environment.get("OAR_JOB_WALLTIME_SECONDS").and_then(|text| text.parse().ok()),
        };
        let tres = match self.tres.as_deref() {
            Some(text) => Tres::parse(text).ok_or_else(|| invalid("--tres", text))?,
            None => Tres::default(),
        };
        let memory_bytes = match self.memory.as_deref() {
            Some(text) => Some(bytes(text).ok_or_else(|| invalid("--memory", text))?),
            None => tres.memory_bytes_per_node(),
        };
        let restarts = || environment.get("SLURM_JOB_RESTART_COUNT")?.parse().ok();
        let details = JobDetails {
            name: self.name.clone().or_else(name).map(|name| Text::of(&name)),
            display_id,
            time_limit_s,
            memory_bytes,
            gpus: self.gpus.or(tres.gpus),
            restarts: self.restarts.or_else(restarts),
        };
        Ok((details, warnings))
    }
}

fn option(name: &str, text: &str) -> Result<Identifier, Failure> {
    Identifier::try_from(text).map_err(|error| Failure::Usage(format!("invalid value for {name}: {error}")))
}

/// Returns the id of a task of an array, or of a component of a heterogeneous job.
fn composed_id(environment: &impl SchedulerEnvironment) -> Option<String> {
    let composed = |job: &str, separator: &str, part: &str| {
        Some(format!("{}{separator}{}", environment.get(job)?, environment.get(part)?))
    };
    composed("SLURM_ARRAY_JOB_ID", "_", "SLURM_ARRAY_TASK_ID")
        .or_else(|| composed("SLURM_HET_JOB_ID", "+", "SLURM_HET_JOB_OFFSET"))
}

/// Parses a time limit, in seconds; the inner none means that there is no limit.
fn time_limit_s(text: &str) -> Option<Option<u64>> {
    if text.eq_ignore_ascii_case("UNLIMITED") {
        return Some(None);
    }
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (days.parse::<u64>().ok()?, time),
        None => (0, text),
    };
    let mut seconds = 0_u64;
    let parts: Vec<&str> = time.split(':').collect();
    if parts.len() > 3 || (days > 0 && parts.len() < 3) {
        return None;
    }
    for part in parts {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    Some(Some(days.checked_mul(86_400)?.checked_add(seconds)?))
}

/// Parses a size in bytes: a number with an optional binary unit.
fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.strip_suffix(['K', 'k']) {
        Some(number) => (number, 10),
        None => match (text.strip_suffix('M'), text.strip_suffix('G'), text.strip_suffix('T')) {
            (Some(number), _, _) => (number, 20),
            (_, Some(number), _) => (number, 30),
            (_, _, Some(number)) => (number, 40),
            _ => (text, 0),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let unit = 1_u64 << shift;
    let mut bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 6)?;
        let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
        bytes = bytes.checked_add(part / 10_u64.pow(digits))?;
    }
    Some(bytes)
}

/// The resources of a job on all its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tres {
    memory_bytes: Option<u64>,
    nodes: Option<u64>,
    gpus: Option<u32>,
}

impl Tres {
    /// Parses Slurm's notation. Other resources are ignored. GPUs are counted as `gres/gpu`, by type as
    /// `gres/gpu:TYPE`, or both, depending on what Slurm tracks.
    fn parse(text: &str) -> Option<Self> {
        let mut tres = Self::default();
        let mut typed: Option<u32> = None;
        for item in text.split(',').filter(|item| !item.is_empty() && *item != "N/A") {
            let (name, value) = item.split_once('=')?;
            match name {
                "mem" => tres.memory_bytes = Some(bytes(value)?),
                "node" => tres.nodes = Some(value.parse().ok()?),
                "gres/gpu" => tres.gpus = Some(value.parse().ok()?),
                _ if name.starts_with("gres/gpu:") => {
                    typed = Some(typed.unwrap_or(0).checked_add(value.parse().ok()?)?);
                }
                _ => {}
            }
        }
        tres.gpus = tres.gpus.or(typed);
        Some(tres)
    }

    fn memory_bytes_per_node(self) -> Option<u64> {
        self.memory_bytes?.checked_div(self.nodes.unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::fixed::FixedEnvironment;
    use super::*;

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
        let (details, warnings) = options.details(&controller).unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(details.name.unwrap().to_string(), "solver; rm -rf \"$HOME\"");
        assert_eq!(details.display_id.unwrap().as_str(), "4009_1");
        assert_eq!((details.time_limit_s, details.gpus, details.restarts), (Some(93_784), Some(4), Some(2)));
        assert_eq!(details.memory_bytes, Some(7 << 28));
    }

    #[test]
    fn a_component_of_a_heterogeneous_job_has_slurms_id() {
        let component = FixedEnvironment::new([("SLURM_HET_JOB_ID", "4009"), ("SLURM_HET_JOB_OFFSET", "1")]);
        let (details, _) = DetailOptions::default().details(&component).unwrap();
        assert_eq!(details.display_id.unwrap().as_str(), "4009+1");
        let (details, _) = DetailOptions::default().details(&FixedEnvironment::new([])).unwrap();
        assert!(details.is_empty());
    }

    #[test]
    fn an_invalid_name_is_ignored_with_a_warning_and_an_invalid_option_is_an_error() {
        let environment =
            FixedEnvironment::new([("SLURM_ARRAY_JOB_ID", "a\u{202e}"), ("SLURM_ARRAY_TASK_ID", "1")]);
        let (details, warnings) = DetailOptions::default().details(&environment).unwrap();
        assert_eq!((details.display_id, warnings.len()), (None, 1));
        for options in [
            DetailOptions { time_limit: Some("1-00".to_owned()), ..Default::default() },
            DetailOptions { tres: Some("mem".to_owned()), ..Default::default() },
            DetailOptions { memory: Some("-1G".to_owned()), ..Default::default() },
            DetailOptions { display_id: Some(" ".to_owned()), ..Default::default() },
        ] {
            assert!(matches!(options.details(&environment), Err(Failure::Usage(_))), "{options:?}");
        }
    }

    #[test]
    fn parses_times_and_sizes_of_schedulers() {
        assert_eq!(
            ["90", "1:30", "2:00:00", "10-00:00:00", "UNLIMITED"].map(time_limit_s),
            [Some(Some(90)), Some(Some(90)), Some(Some(7200)), Some(Some(864_000)), Some(None)]
        );
        assert_eq!(
            ["", "1:2:3:4", "1-2", "x", "-1", "18446744073709551615-00:00:00"].map(time_limit_s),
            [None; 6]
        );
        assert_eq!(
            ["0", "4096", "100M", "1.5G", "2T", "4k"].map(bytes),
            [Some(0), Some(4096), Some(100 << 20), Some(3 << 29), Some(2 << 40), Some(4096)]
        );
        assert_eq!(["", "G", "1.G2", "1.0000001G", "99999999999T"].map(bytes), [None; 5]);
        assert_eq!(Tres::parse("mem=30M,node=0").unwrap().memory_bytes_per_node(), None);
        assert_eq!(Tres::parse("N/A"), Some(Tres::default()));
    }

    #[test]
    fn gpus_are_counted_however_slurm_tracks_them() {
        for (text, gpus) in [
            ("billing=8,cpu=8,gres/gpu:h100=1,mem=8G,node=1", Some(1)),
            ("cpu=4,gres/gpu:a100=2,gres/gpu:3g.20gb=5,node=2", Some(7)),
            ("gres/gpu:v100=3,gres/gpu=4,cpu=1", Some(4)),
            ("gres/gpu=2,gres/gpu:v100=2", Some(2)),
            ("cpu=1,gres/gpumem=80G,gres/gpuutil=90,gres/shard:a100=8", None),
        ] {
            assert_eq!(Tres::parse(text).unwrap().gpus, gpus, "{text}");
        }
        assert_eq!(Tres::parse("gres/gpu:a=4294967295,gres/gpu:b=1"), None);
    }
}
