//! A private Slurm cluster on the loopback interface: a controller, some nodes, MUNGE, and the prolog and
//! epilog of `deploy/`. All its processes are ended and its cgroups removed when the test ends, also after a
//! failure.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::munge::{self, Munged};
use crate::{cgroup, pause, program, unique, wait_until};

/// Hierarchies in which Slurm creates cgroups.
const HIERARCHIES: [&str; 4] = ["memory", "cpuacct", "cpuset", "freezer"];

/// Hierarchies in which Slurm with cgroup version 1 creates none, and a site may.
const SITE_HIERARCHIES: [&str; 4] = ["cpu", "blkio", "pids", cgroup::V2];

/// An ordinary user of every Debian: uid, gid and name.
pub const USER: (u32, u32, &str) = (5, 60, "games");
pub const OTHER_USER: (u32, u32, &str) = (6, 12, "man");

/// Shell command that takes 200 MB. The kernel may kill a second process of a job at its memory limit, and
/// prefers those of this command: if it kills slurmstepd, Slurm does not learn that the job has ended.
pub const TAKE_MEMORY: &str = "(echo 1000 >/proc/self/oom_score_adj; head -c 200M /dev/zero | tail)";

pub fn missing() -> Option<String> {
    let programs = ["slurmctld", "slurmd", "sbatch", "srun", "scontrol"];
    let mpi = ["mpicc.mpich", "mpiexec.hydra"];
    let slurm = programs
        .into_iter()
        .chain(mpi)
        .find(|program| Command::new(program).arg("-V").output().is_err())
        .map(|program| format!("there is no {program}"));
    slurm
        .or_else(munge::missing)
        .or_else(|| ["memory", "cpuacct", "freezer", "cpuset"].into_iter().find_map(cgroup::unavailable))
}

/// Configuration of a node's agent with tables of periods. All nodes run on this machine, each with its own
/// cgroups.
pub fn agent_config(node: &str, collector: &str, periods: &str) -> String {
    format!(
        "node = \"{node}\"\ncollector = \"{collector}\"\nflush_interval = \"50ms\"\n\
         jobs = [\"slurm_{node}/uid_{{uid}}/job_{{job}}\"]\n{periods}"
    )
}

pub struct Cluster {
    pub nodes: Vec<String>,
    daemons: Vec<Child>,
    directory: TempDir,
    munged: Munged,
}

impl Cluster {
    /// Starts a cluster of two nodes. Its prologs start an agent on each node with the configuration that
    /// `configure` returns for the node's name and the path of the agent's socket. The controller reports the
    /// ends of jobs to the collector's socket.
    pub fn start(collector: &Path, configure: impl Fn(&str, &Path) -> String) -> Self {
        Self::of(2, collector, configure)
    }

    /// Starts a cluster of so many nodes, at most 52.
    pub fn of(nodes: usize, collector: &Path, configure: impl Fn(&str, &Path) -> String) -> Self {
        let name = unique().replace('-', "");
        let nodes = ('a'..='z').chain('A'..='Z').take(nodes).map(|node| format!("{name}{node}")).collect();
        let directory = tempfile::tempdir().unwrap();
        let munged = Munged::start();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut cluster = Self { nodes, daemons: Vec::new(), directory, munged };
        for node in &cluster.nodes {
            fs::create_dir(cluster.path(node)).unwrap();
            fs::create_dir(cluster.path(&format!("run.{node}"))).unwrap();
            let config = configure(node, &cluster.socket(node));
            fs::write(cluster.path(&format!("agent.{node}.toml")), config).unwrap();
        }
        for script in ["prolog", "epilog"] {
            cluster.write_script(script);
        }
        cluster.write_controllers_script("prolog-slurmctld", collector);
        cluster.write_controllers_script("epilog-slurmctld", collector);
        cluster.write_config();
        cluster.start_daemon("slurmctld", &["-D", "-i"]);
        for node in cluster.nodes.clone() {
            cluster.start_daemon("slurmd", &["-D", "-N", &node]);
        }
        wait_until("all nodes are idle", || cluster.states().iter().all(|state| state == "idle"));
        cluster
    }

    fn states(&self) -> Vec<String> {
        let output = self.run("sinfo", &["-h", "-N", "-o", "%t"]);
        let states: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        if states.is_empty() { vec!["unknown".to_owned()] } else { states }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self, node: &str) -> PathBuf {
        self.path(&format!("run.{node}/agent.sock"))
    }

    /// Writes a script of `deploy/` and adapts only its paths, as an administrator would. The script does
    /// nothing while the file `disabled`, or that of the node, exists. Afterwards the prolog gives the agent
    /// as much CPU time as [`Self::prioritise`] gives the jobs, and the epilog removes the job's cgroups that
    /// the site created.
    fn write_script(&self, name: &str) {
        let site = SITE_HIERARCHIES.into_iter().filter_map(cgroup::root);
        let site: Vec<String> = site.map(|root| root.display().to_string()).collect();
        let text = format!(
            "#!/bin/sh\n[ -e {disabled} ] || [ -e {disabled}.$SLURMD_NODENAME ] && exit 0\nexport POLYMETER={polymeter}\nexport POLYMETER_SOCKET={here}/run.$SLURMD_NODENAME/agent.sock\nexport POLYMETER_AGENT_CONFIG={here}/agent.$SLURMD_NODENAME.toml\n{script} 2>>{here}/{name}.stderr\n[ {name} = prolog ] && for pid in $(pgrep -f {here}/agent.$SLURMD_NODENAME.toml); do\n    echo -20 >/proc/$pid/autogroup\ndone 2>/dev/null\n[ {name} = epilog ] && for root in {site}; do\n    rmdir \"$root/slurm_$SLURMD_NODENAME/uid_$SLURM_JOB_UID/job_$SLURM_JOB_ID\" 2>/dev/null\ndone\nexit 0\n",
            site = site.join(" "),
            disabled = self.path("disabled").display(),
            polymeter = program("polymeter").get_program().to_str().unwrap(),
            here = self.directory.path().display(),
            script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm").join(name).display(),
        );
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn write_controllers_script(&self, name: &str, collector: &Path) {
        let text = format!(
            "#!/bin/sh\nexport POLYMETER={polymeter}\nexport POLYMETER_COLLECTOR={collector}\nexport SLURM_CONF={here}/slurm.conf\nexec {script}\n",
            polymeter = program("polymeter").get_program().to_str().unwrap(),
            collector = collector.display(),
            here = self.directory.path().display(),
            script = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../deploy/slurm")
                .join(name)
                .with_extension("sh")
                .display(),
        );
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub fn scripts_stderr(&self) -> String {
        let stderr = ["prolog.stderr", "epilog.stderr"].map(|name| fs::read_to_string(self.path(name)));
        stderr.into_iter().flatten().collect()
    }

    /// Switches the scripts off (`disabled` is true) or on again.
    pub fn disable_scripts(&self, disabled: bool) {
        if disabled {
            File::create(self.path("disabled")).unwrap();
        } else {
            fs::remove_file(self.path("disabled")).unwrap();
        }
    }

    pub fn disable_scripts_on(&self, node: &str, disabled: bool) {
        let file = self.path(&format!("disabled.{node}"));
        if disabled { drop(File::create(file).unwrap()) } else { fs::remove_file(file).unwrap() }
    }

    /// Gives the jobs and the daemons of this cluster nearly all the CPU time they want, whatever else runs.
    pub fn prioritise(&self) {
        for (node, slurmd) in self.nodes.iter().zip(self.daemons.iter().skip(1)) {
            let directory = cgroup::root("cpu").unwrap().join(format!("slurm_{node}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("cpu.shares"), "262144").unwrap();
            fs::write(directory.join("cgroup.procs"), slurmd.id().to_string()).unwrap();
        }
    }

    /// Directory of a job's cgroup in a hierarchy, below that of the node.
    pub fn job_directory(&self, hierarchy: &str, node: &str, uid: u32, job: &str) -> PathBuf {
        cgroup::root(hierarchy).unwrap().join(format!("slurm_{node}/uid_{uid}/job_{job}"))
    }

    /// Creates cgroups of a job in further hierarchies and moves its processes there, as the scripts of a
    /// site may.
    pub fn add_cgroups(&self, node: &str, uid: u32, job: &str, hierarchies: &[&str]) {
        let own = self.job_directory("cpuacct", node, uid, job);
        wait_until("the job's script runs", || !cgroup::processes(&own.join("step_batch")).is_empty());
        for hierarchy in hierarchies {
            let directory = self.job_directory(hierarchy, node, uid, job);
            fs::create_dir_all(&directory).unwrap();
            for pid in cgroup::processes(&own) {
                // A process may have ended meanwhile; its parent, which waits, has not.
                fs::write(directory.join("cgroup.procs"), pid).ok();
            }
        }
    }

    fn write_config(&self) {
        // The ports are bound and released: another program is unlikely to take them in the next moments.
        let ports: Vec<TcpListener> =
            (0..=self.nodes.len()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |number: usize| ports[number].local_addr().unwrap().port();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().unwrap();
        let here = self.directory.path().display();
        let mut text = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nSlurmdParameters=config_overrides\nAuthType=auth/munge\nAuthInfo=socket={munge}\nCredType=cred/munge\nStateSaveLocation={here}/state\nSlurmdSpoolDir={here}/%n\nSlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd.%n.pid\nSlurmctldLogFile={here}/slurmctld.log\nSlurmdLogFile={here}/slurmd.%n.log\nSlurmctldPort={ctld}\nCommunicationParameters=NoCtldInAddrAny,NoInAddrAny\nMpiDefault=none\nProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nJobAcctGatherType=jobacct_gather/cgroup\nJobAcctGatherFrequency=task=1\nSwitchType=switch/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=100\nSchedulerType=sched/backfill\nSchedulerParameters=sched_interval=1,batch_sched_delay=0\nReturnToService=2\nKillWait=2\nUnkillableStepTimeout=10\nMinJobAge=600\nJobRequeue=1\nProlog={here}/prolog\nEpilog={here}/epilog\nPrologSlurmctld={here}/prolog-slurmctld\nEpilogSlurmctld={here}/epilog-slurmctld\nPrologFlags=Alloc,Contain\n",
            munge = self.munged.socket().display(),
            ctld = port(0),
        );
        for (number, node) in self.nodes.iter().enumerate() {
            text.push_str(&format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=20000 State=UNKNOWN\n",
                port = port(number + 1),
            ));
        }
        text.push_str("PartitionName=p Nodes=ALL Default=YES DefaultTime=10 MaxTime=300 State=UP\n");
        fs::create_dir(self.path("state")).unwrap();
        fs::write(self.path("slurm.conf"), text).unwrap();
        // More cores are configured than the machine may have, so that processes are not bound to cores.
        let cgroups = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=yes\nConstrainDevices=no\n";
        fs::write(self.path("cgroup.conf"), cgroups).unwrap();
    }

    fn start_daemon(&mut self, name: &str, arguments: &[&str]) {
        let stderr = File::create(self.path(&format!("{name}.{}.stderr", self.daemons.len()))).unwrap();
        let mut command = Command::new(name);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf"));
        command.stdin(Stdio::null()).stdout(stderr.try_clone().unwrap()).stderr(stderr);
        self.daemons.push(command.spawn().unwrap());
    }

    pub fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf")).current_dir("/");
        command
    }

    pub fn run(&self, name: &str, arguments: &[&str]) -> Output {
        self.command(name, arguments).output().unwrap()
    }

    /// Submits a job as root or as an ordinary user, and returns its id.
    pub fn submit(&self, ordinary: bool, arguments: &[&str], script: &str) -> String {
        self.submit_as(ordinary.then_some((USER.0, USER.1)), arguments, script)
    }

    pub fn submit_as(&self, user: Option<(u32, u32)>, arguments: &[&str], script: &str) -> String {
        let mut command = self.command("sbatch", &["--parsable", "-o", "/dev/null"]);
        command.args(arguments).arg("--wrap").arg(script);
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn of_job(&self, job: &str, field: &str) -> String {
        let output = self.run("scontrol", &["-o", "show", "job", job]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    pub fn wait_for(&self, job: &str, states: &[&str]) {
        wait_until(&format!("job {job} is {states:?}"), || {
            let state = self.of_job(job, "JobState");
            states.contains(&state.as_str())
        });
    }

    /// Daemons of this cluster, and the processes that they started for jobs.
    fn processes(&self) -> Vec<Pid> {
        let variable_of_cluster = format!("SLURM_CONF={}", self.path("slurm.conf").display());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let mut pids: Vec<i32> = pids.collect();
        pids.retain(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == variable_of_cluster.as_bytes())
        });
        pids.into_iter().filter_map(Pid::from_raw).collect()
    }

    pub fn agent(&self, node: &str) -> Option<Pid> {
        let stream = std::os::unix::net::UnixStream::connect(self.socket(node)).ok()?;
        Some(rustix::net::sockopt::socket_peercred(stream).unwrap().pid)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in self.nodes.iter().filter(|node| self.agent(node).is_some()) {
                println!("agent: {}", crate::daemons::ask(&self.socket(node), "{\"verb\":\"status\"}\n"));
            }
            println!("scripts: {}", self.scripts_stderr());
            for name in ["slurmctld.log".to_owned()]
                .into_iter()
                .chain(self.nodes.iter().map(|node| format!("slurmd.{node}.log")))
            {
                println!("{name}:\n{}", fs::read_to_string(self.path(&name)).unwrap_or_default());
            }
        }
        for daemon in &self.daemons {
            if let Some(pid) = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::TERM).ok();
            }
        }
        for node in &self.nodes {
            if let Some(agent) = self.agent(node) {
                kill_process(agent, Signal::KILL).ok();
            }
        }
        // slurmd leaves running steps to its successor; here no successor follows.
        for _ in 0..200 {
            self.daemons.retain_mut(|daemon| daemon.try_wait().is_ok_and(|ended| ended.is_none()));
            if self.daemons.is_empty() {
                break;
            }
            pause(10);
        }
        for process in self.processes() {
            kill_process(process, Signal::KILL).ok();
        }
        for daemon in &mut self.daemons {
            daemon.wait().ok();
        }
        for hierarchy in HIERARCHIES.into_iter().chain(SITE_HIERARCHIES).filter_map(cgroup::root) {
            for node in &self.nodes {
                cgroup::remove(&hierarchy.join(format!("slurm_{node}"))).ok();
            }
        }
    }
}
