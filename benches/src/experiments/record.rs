//! Records the frames that an agent sends for a real job.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use polymeter_agent::Agent;
use polymeter_agent::cgroups::Mounts;
use polymeter_agent::config::AgentConfig;
use polymeter_agent::plan::Layer;
use polymeter_agent::request::JobSpec;
use polymeter_benches::job::Job;
use polymeter_benches::table::say;
use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::ToAgent;

/// Records the frames of an agent about a job, as data/job-1ms.frames.
///
/// Needs root, for cgroups. The job allocates memory, computes, forks and writes: 50 values per tick from
/// memory.stat of cgroup version 1, cpu.stat of version 2 and software perf events.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Duration of the recording, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// File to write.
    file: PathBuf,
}

const ENDPOINT: &str = "inproc://record";

const PLAN: &str = "control_socket = \"off\"\n[baseline]\n\"cpu.usage\" = \"1ms\"\n\"cpu.user\" = \"1ms\"\n\"cpu.system\" = \"1ms\"\n\"perf.cpu_clock\" = \"1ms\"\n\"perf.task_clock\" = \"1ms\"\n\"perf.page_faults*\" = \"1ms\"\n\"perf.context_switches\" = \"1ms\"\n\"perf.cpu_migrations\" = \"1ms\"\n\"memory.*\" = \"1ms\"\n\"memory.current\" = \"off\"\n\"memory.peak\" = \"off\"\n\"memory.limit*\" = \"off\"\n\"memory.events.max\" = \"off\"\n\"memory.events.*\" = \"off\"\n\"memory.under_oom\" = \"off\"\n\"memory.memsw.*\" = \"off\"\n\"memory.kernel.*\" = \"off\"\n\"memory.tcp.*\" = \"off\"\n\"memory.hierarchical*\" = \"off\"\n";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let context = zmq::Context::new();
    let collector = context.socket(zmq::ROUTER)?;
    collector.bind(ENDPOINT)?;
    let config =
        AgentConfig { collectors: vec![ENDPOINT.to_owned()], ..AgentConfig::parse(Path::new("plan"), PLAN)? };
    let agent = Agent::start(config, &context)?;
    let mut job =
        Job::make(&Mounts::read(Path::new("/"))?, &format!("polymeter_record_{}", std::process::id()))?;
    let scratch = tempfile::NamedTempFile::new()?;
    job.work(scratch.path())?;
    let spec = JobSpec {
        job_id: "recorded".try_into()?,
        cluster: None,
        owner_uid: None,
        owner: None,
        cgroups: job.directories().to_vec(),
        process: None,
        sampling: Layer::default(),
        facts: JobFacts::default(),
        details: JobDetails::default(),
    };
    agent.register(spec)?;
    let mut file = std::fs::File::create(&arguments.file)?;
    let mut samples = 0;
    for _ in 0..=arguments.seconds {
        let message = collector.recv_multipart(0)?;
        let [peer, bytes] = message.as_slice() else { continue };
        let frame = Frame::decode(bytes)?;
        samples += frame.samples();
        file.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
        file.write_all(bytes)?;
        let ack = ToAgent::Ack { session: frame.session, through: frame.sequence };
        collector.send_multipart([peer, &ack.encode()], 0)?;
    }
    say(&format!("{samples} samples in {}", arguments.file.display()));
    agent.stop(std::time::Duration::ZERO);
    Ok(())
}
