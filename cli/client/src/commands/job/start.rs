//! `polymeter job start`: announces a job to this node's agent, from a prolog.

use std::path::PathBuf;
use std::process::ExitCode;

use polymeter_proto::control::{Answer, Request, StartRequest, StartedAnswer};
use polymeter_proto::ledger::JobDetails;
use polymeter_proto::node_list;
use polymeter_proto::text::Text;
use polymeter_service::log::Severity;

use super::agent_start::{self, StartOptions};
use super::details::DetailOptions;
use super::environment::{ProcessEnvironment, SchedulerEnvironment, job_id};
use super::problem::report;
use super::said::{self, Said, Unread, printable};
use super::sampling_request::{self, SamplingRequest};
use crate::connection::agent::{SOCKET, unexpected};
use crate::failure::Failure;

/// Depends on Slurm's version.
const NODE_LISTS: [&str; 2] = ["SLURM_NODELIST", "SLURM_JOB_NODELIST"];

/// GPUs of the job on this node: variables of Slurm, NVIDIA, AMD and OpenCL.
const GPU_LISTS: [&str; 5] = [
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
];

/// Time limit after which Slurm ends a job without one: a year.
const UNLIMITED_S: u64 = 365 * 86_400;

/// Exit status of every refused command.
const REFUSED: u8 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct StartArguments {
    #[command(flatten)]
    job: JobDescription,

    #[command(flatten)]
    agent: StartOptions,

    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Exit with a status other than 0 when something fails. Default: failures are only reported, on stderr
    /// and to syslog.
    #[arg(long)]
    strict: bool,
}

impl StartArguments {
    pub(super) const fn is_strict(&self) -> bool {
        self.strict
    }
}

/// Options that describe a job. Their defaults are variables of Slurm's and OAR's scripts.
#[derive(Debug, Clone, Default, clap::Args)]
struct JobDescription {
    /// The job's id. Default: SLURM_JOB_ID or OAR_JOB_ID.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The job's name in cgroup paths, if it is not the job's id. Default: SLURM_JOB_SLUID.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    alias: Option<String>,

    /// The cluster. Default: SLURM_CLUSTER_NAME.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    cluster: Option<String>,

    /// The owner's numeric id. Default: SLURM_JOB_UID.
    #[arg(long, value_name = "UID", value_parser = printable(), allow_hyphen_values = true)]
    uid: Option<String>,

    /// The owner's name. Default: SLURM_JOB_USER or OAR_USER.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    user: Option<String>,

    /// The owner's sampling request: 'cpu.*=10ms, steps: cpu.usage=100ms, tasks: cpu.user=1s for 1h', and
    /// triggers: 'ring: cpu.*=10ms, trigger oom when oom keep 30s'.
    /// Default: the text behind `polymeter:` in SLURM_JOB_COMMENT.
    #[arg(long, value_name = "TEXT")]
    request: Option<String>,

    /// The account or project to which the job is charged. Default: SLURM_JOB_ACCOUNT or OAR_PROJECT_NAME.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    account: Option<String>,

    /// The queue or partition of the job. Default: SLURM_JOB_PARTITION.
    #[arg(long, value_name = "NAME", value_parser = printable(), allow_hyphen_values = true)]
    queue: Option<String>,

    /// The nodes of the job, in the scheduler's notation. Default: SLURM_NODELIST or SLURM_JOB_NODELIST.
    #[arg(long, value_name = "LIST", value_parser = printable(), allow_hyphen_values = true)]
    nodes: Option<String>,

    /// The number of cores of the job on all nodes. Default: the sum of SLURM_JOB_CPUS_PER_NODE, or from
    /// --tres.
    #[arg(long, value_name = "NUMBER", value_parser = printable(), allow_hyphen_values = true)]
    cores: Option<String>,

    /// The GPUs of the job on this node: numbers or UUIDs, such as 0,1. Default: SLURM_JOB_GPUS,
    /// CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or GPU_DEVICE_ORDINAL.
    #[arg(long, value_name = "LIST", value_parser = printable(), allow_hyphen_values = true)]
    gpu_devices: Option<String>,

    #[command(flatten)]
    details: DetailOptions,
}

pub(super) fn execute(arguments: &StartArguments) -> Result<ExitCode, Failure> {
    let (start, ignored) = arguments.job.start(&ProcessEnvironment)?;
    ignored.iter().for_each(|warning| report(Severity::Warning, warning));
    let job = start.job.clone();
    let verb = Request::Start(start);
    let answer = agent_start::ask_or_start(&arguments.socket, &verb, &arguments.agent)?;
    let Answer::Started(StartedAnswer { refused, .. }) = answer else { return Err(unexpected(answer)) };
    let Some(refusal) = refused else { return Ok(ExitCode::SUCCESS) };
    let message = format!("cannot grant the sampling request of job {job}: {}", refusal.message);
    report(Severity::Warning, &message);
    Ok(if arguments.strict { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

impl JobDescription {
    /// Warns of each field that cannot be read: the job is tracked nevertheless.
    fn start(&self, environment: &impl SchedulerEnvironment) -> Result<(StartRequest, Vec<String>), Failure> {
        let mut said = Said { environment, unread: Unread::default() };
        let (mut details, cores) = self.details.details(&mut said);
        self.add_what_slurm_gave(&mut details, environment);
        let text = self.request_text(environment);
        let (SamplingRequest { plan, steps, tasks, ring, triggers, pmu_release, duration }, error) =
            match text.as_deref().map(sampling_request::parse).transpose() {
                Ok(request) => (request.unwrap_or_default(), None),
                Err(error) => (SamplingRequest::default(), Some(error.to_string())),
            };
        let mut name = |option: (&str, Option<&String>), variables: &[&str]| {
            said.name(option, variables).map(String::from)
        };
        let mut start = StartRequest {
            job: job_id(self.job.as_ref(), environment)?,
            alias: name(("--alias", self.alias.as_ref()), &["SLURM_JOB_SLUID"]),
            cluster: name(("--cluster", self.cluster.as_ref()), &["SLURM_CLUSTER_NAME"]),
            user: name(("--user", self.user.as_ref()), &["SLURM_JOB_USER", "OAR_USER"]),
            plan,
            steps: Box::new(steps),
            tasks: Box::new(tasks),
            ring: Box::new(ring),
            triggers,
            pmu_release,
            duration,
            // The agent shows an invalid request to the owner.
            request: text.filter(|_| error.is_some()).map(|text| Text::of(&text).to_string()),
            request_error: error.map(Box::from),
            account: name(("--account", self.account.as_ref()), &["SLURM_JOB_ACCOUNT", "OAR_PROJECT_NAME"]),
            queue: name(("--queue", self.queue.as_ref()), &["SLURM_JOB_PARTITION"]),
            details: Box::new(details),
            ..StartRequest::default()
        };
        start.uid = said.read(("--uid", self.uid.as_ref()), &["SLURM_JOB_UID"], said::number);
        start.nodes = said.read(("--nodes", self.nodes.as_ref()), &NODE_LISTS, said::nodes);
        start.cores = said.read(("--cores", self.cores.as_ref()), &["SLURM_JOB_CPUS_PER_NODE"], said::cores);
        start.cores = start.cores.or(cores);
        let devices = said.read(("--gpu-devices", self.gpu_devices.as_ref()), &GPU_LISTS, said::gpu_devices);
        start.gpu_devices = devices.filter(|devices| !devices.is_empty());
        if let Some(devices) = &start.gpu_devices {
            let count = u32::try_from(devices.split(',').count()).ok();
            start.details.node_gpus = count;
            let is_only_node = environment.get("SLURM_JOB_NUM_NODES").as_deref() == Some("1");
            start.details.gpus = start.details.gpus.or(count.filter(|_| is_only_node));
        }
        start.unread = said.unread.texts().map(|texts| Box::new(Text::from(texts)));
        Ok((start, said.unread.warnings().map(str::to_owned).collect()))
    }

    /// Adds what the prolog says about the job on this node, and about its time limit.
    fn add_what_slurm_gave(&self, details: &mut JobDetails, environment: &impl SchedulerEnvironment) {
        let per_node = environment.get("SLURM_JOB_CPUS_PER_NODE").filter(|_| self.cores.is_none());
        details.node_cores = per_node.and_then(|per_node| {
            said::cores_at(&per_node, || {
                let list = NODE_LISTS.iter().find_map(|name| environment.get(name))?;
                let own = environment.get("SLURMD_NODENAME")?;
                node_list::expanded(&list)?.iter().position(|node| *node == own)
            })
        });
        let seconds = |name| environment.get(name)?.trim().parse::<u64>().ok();
        let limit_s = seconds("SLURM_JOB_END_TIME")
            .zip(seconds("SLURM_JOB_START_TIME"))
            .and_then(|(end, start)| end.checked_sub(start))
            .filter(|limit_s| (1..UNLIMITED_S).contains(limit_s));
        details.time_limit_s = details.time_limit_s.or(limit_s);
    }

    fn request_text(&self, environment: &impl SchedulerEnvironment) -> Option<String> {
        if self.request.is_some() {
            return self.request.clone();
        }
        let comment = environment.get("SLURM_JOB_COMMENT")?;
        sampling_request::in_comment(&comment).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::fixed::FixedEnvironment;
    use super::*;

    #[test]
    fn slurms_variables_describe_the_job() {
        let prolog = FixedEnvironment::new([
            ("SLURM_JOB_ID", "42"),
            ("SLURM_JOB_UID", "1000"),
            ("SLURM_JOB_USER", "zoe"),
            ("SLURM_CLUSTER_NAME", "lab"),
            ("SLURM_JOB_ACCOUNT", "physics"),
            ("SLURM_JOB_PARTITION", "long"),
            ("SLURM_JOB_CPUS_PER_NODE", "16(x2),8"),
            ("SLURM_JOB_NAME", "solver"),
            ("SLURM_JOB_GPUS", "2,3"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("SLURM_JOB_COMMENT", "for the paper; polymeter: cpu.*=10ms for 1h"),
        ]);
        let (start, warnings) = JobDescription::default().start(&prolog).unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("42", Some(1000), Some("zoe")));
        assert_eq!((start.cluster.as_deref(), start.duration.as_deref()), (Some("lab"), Some("1h")));
        assert_eq!((start.account.as_deref(), start.queue.as_deref()), (Some("physics"), Some("long")));
        assert_eq!((start.cores, start.details.name.unwrap().to_string().as_str()), (Some(40), "solver"));
        assert_eq!(start.gpu_devices.as_deref(), Some("2,3"));
        assert_eq!((start.plan["cpu.*"].as_str(), start.request_error), ("10ms", None));
        assert_eq!((start.details.node_cores, start.details.node_gpus), (None, Some(2)), "of no named node");
        assert_eq!((start.details.gpus, start.details.time_limit_s), (None, None));
        let details = DetailOptions { tres: Some("cpu=24".to_owned()), ..DetailOptions::default() };
        let options = JobDescription { details, ..JobDescription::default() };
        let bare = FixedEnvironment::new([("SLURM_JOB_ID", "42")]);
        assert_eq!(options.start(&bare).unwrap().0.cores, Some(24));
        assert_eq!(options.start(&prolog).unwrap().0.cores, Some(40), "what Slurm gave");
        let options =
            JobDescription { job: Some("43".to_owned()), uid: Some("7".to_owned()), ..Default::default() };
        let (start, _) = options.start(&prolog).unwrap();
        assert_eq!((start.job.as_str(), start.uid), ("43", Some(7)));
    }

    fn details_of_prolog(per_node: &'static str, more: [(&'static str, &'static str); 3]) -> JobDetails {
        let variables = [
            ("SLURM_JOB_ID", "42"),
            ("SLURM_JOB_CPUS_PER_NODE", per_node),
            ("SLURM_NODELIST", "n[08-10]"),
            ("SLURMD_NODENAME", "n10"),
            ("SLURM_JOB_GPUS", "1"),
        ];
        let all: Vec<_> = variables.into_iter().chain(more).collect();
        let environment = FixedEnvironment::new(<[_; 8]>::try_from(all).unwrap());
        *JobDescription::default().start(&environment).unwrap().0.details
    }

    fn limited(nodes: &'static str, end: &'static str) -> [(&'static str, &'static str); 3] {
        [("SLURM_JOB_NUM_NODES", nodes), ("SLURM_JOB_START_TIME", "1700000000"), ("SLURM_JOB_END_TIME", end)]
    }

    /// Variables of slurmd 22.05, and those that later versions add, on one of three nodes.
    #[test]
    fn a_prolog_alone_tells_what_slurm_gave_on_its_node() {
        let none = [("A", ""), ("B", ""), ("C", "")];
        let details = details_of_prolog("16(x2),8", limited("3", "1700000600"));
        assert_eq!(details.scheduler.as_ref().map(|name| name.as_str()), Some("slurm"));
        assert_eq!((details.node_cores, details.node_gpus, details.gpus), (Some(8), Some(1), None));
        assert_eq!(details.time_limit_s, Some(600));
        let details = details_of_prolog("4(x3)", limited("1", "1731536000"));
        assert_eq!((details.node_cores, details.gpus, details.time_limit_s), (Some(4), Some(1), None));
        assert_eq!(details_of_prolog("many", none).node_cores, None);
    }

    #[test]
    fn gpus_of_any_vendor_are_counted() {
        for (variable, list, devices) in [
            ("ROCR_VISIBLE_DEVICES", "0,3", "0,3"),
            ("ROCR_VISIBLE_DEVICES", "GPU-9d3b2c0f7a1e4455,2", "GPU-9d3b2c0f7a1e4455,2"),
            ("HIP_VISIBLE_DEVICES", "1", "1"),
            ("GPU_DEVICE_ORDINAL", "0,1,2,3", "0,1,2,3"),
        ] {
            let environment = FixedEnvironment::new([
                ("SLURM_JOB_ID", "42"),
                ("SLURM_JOB_NUM_NODES", "1"),
                (variable, list),
            ]);
            let (start, _) = JobDescription::default().start(&environment).unwrap();
            let count = u32::try_from(devices.split(',').count()).ok();
            assert_eq!(start.gpu_devices.as_deref(), Some(devices), "{variable}");
            assert_eq!((start.details.node_gpus, start.details.gpus), (count, count), "{variable}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_kept_with_a_warning() {
        let long = Box::leak("n1,".repeat(100).into_boxed_str());
        let invalid = FixedEnvironment::new([
            ("SLURM_JOB_ID", "42"),
            ("SLURM_NODELIST", &*long),
            ("SLURM_JOB_CPUS_PER_NODE", "many"),
            ("SLURM_JOB_ACCOUNT", "a\u{202e}b"),
            ("SLURM_JOB_USER", r"CORP\jdoe"),
            ("SLURM_CLUSTER_NAME", " "),
            ("GPU_DEVICE_ORDINAL", "NoDevFiles"),
        ]);
        let options = JobDescription { uid: Some("-1".to_owned()), ..Default::default() };
        let (start, warnings) = options.start(&invalid).unwrap();
        assert_eq!((start.nodes, start.cores, start.uid, start.cluster), (None, None, None, None));
        assert_eq!((start.user.as_deref(), start.gpu_devices), (Some(r"CORP\jdoe"), None));
        assert_eq!(start.account.as_deref(), Some(r"a\xe2\x80\xaeb"));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert_eq!(
            warnings[0],
            "cannot read `-1` of --uid: expected a whole number below 4294967296; it counts as unknown"
        );
        let unread = start.unread.unwrap().to_string();
        let texts = ["--uid -1; ", "SLURM_NODELIST n1,n1,", "SLURM_JOB_CPUS_PER_NODE many"];
        assert!(texts.iter().all(|text| unread.contains(text)), "{unread}");
    }

    #[test]
    fn oars_variables_describe_the_job_and_without_an_id_there_is_none() {
        let prologue = FixedEnvironment::new([("OAR_JOB_ID", "7"), ("OAR_USER", "zoe")]);
        let (start, _) = JobDescription::default().start(&prologue).unwrap();
        assert_eq!((start.job.as_str(), start.uid, start.user.as_deref()), ("7", None, Some("zoe")));
        let nothing = FixedEnvironment::new([]);
        assert!(matches!(JobDescription::default().start(&nothing), Err(Failure::Usage(_))));
    }

    #[test]
    fn an_invalid_request_is_passed_on_with_its_error() {
        let comment =
            FixedEnvironment::new([("SLURM_JOB_ID", "42"), ("SLURM_JOB_COMMENT", "polymeter: faster")]);
        let (start, _) = JobDescription::default().start(&comment).unwrap();
        assert_eq!((start.job.as_str(), start.request.as_deref()), ("42", Some("faster")));
        assert!(start.request_error.unwrap().contains("`faster`"));
    }
}
