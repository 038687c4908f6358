//! The jobs with known faults, and healthy ones, with the findings that their reports must have.

use std::path::Path;

use polymeter_e2e::cgroup;
use polymeter_e2e::slurm::{OTHER_USER, TAKE_MEMORY, USER};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intervention {
    None,
    /// The job's script waits until its processes are in cgroups of these hierarchies, too.
    Cgroups(&'static [&'static str]),
    /// The same in the hierarchy `cpu`, with a quota of half a CPU.
    HalfCpu,
    Cancel,
    /// The agent of the first node is killed, and started again by the prolog of another job.
    KillAgent,
    /// Case without an agent on the second node.
    NoAgent,
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Uid, gid and name of the owner; root otherwise.
    pub(super) user: Option<(u32, u32, &'static str)>,
    pub(super) options: Vec<String>,
    pub(super) script: String,
    pub(super) intervention: Intervention,
    pub(super) state: &'static str,
    pub(super) findings: &'static [&'static str],
    /// Length of the job on an idle machine, in minutes, if it uses the CPU all the time.
    pub(super) minutes: Option<f64>,
}

impl Case {
    fn of(name: &'static str, options: &str, script: String, findings: &'static [&'static str]) -> Self {
        let options = options.split_whitespace().map(str::to_owned).collect();
        let (intervention, state) = (Intervention::None, "COMPLETED");
        let minutes = None;
        Self { name, user: Some(USER), options, script, intervention, state, findings, minutes }
    }

    fn root(self) -> Self {
        Self { user: None, ..self }
    }

    fn other(self) -> Self {
        Self { user: Some(OTHER_USER), ..self }
    }

    fn with(self, intervention: Intervention) -> Self {
        Self { intervention, ..self }
    }

    fn lasts(self, minutes: f64) -> Self {
        Self { minutes: Some(minutes), ..self }
    }

    fn ends(self, state: &'static str) -> Self {
        Self { state, ..self }
    }
}

/// Programs of the jobs. Times are in minutes, which last `minute_ms`.
pub(super) struct Programs<'a> {
    pub(super) minute_ms: f64,
    pub(super) workload: &'a Path,
    /// Program of [`super::FAULTS_C`].
    pub(super) faults: &'a Path,
    /// A file which releases the scripts that wait for it, with the job's id appended.
    pub(super) released: &'a Path,
}

impl Programs<'_> {
    fn ms(&self, minutes: f64) -> u64 {
        (self.minute_ms * minutes) as u64
    }

    fn run(&self, commands: &str) -> String {
        format!("{} '{}'", self.workload.display(), commands.trim_end_matches(';'))
    }

    /// Uses one core for some minutes of CPU time.
    fn busy(&self, minutes: f64) -> String {
        self.run(&format!("burn {}", self.ms(minutes)))
    }

    fn partly_busy(&self, share: f64, minutes: f64) -> String {
        let cycles = (minutes * 10.0) as usize;
        let cycle = format!("burn {};rest {};", self.ms(0.1 * share), self.ms(0.1 * (1.0 - share)));
        self.run(&cycle.repeat(cycles))
    }

    /// Holds some MiB of memory and uses one core.
    fn holding(&self, mib: u64, minutes: f64) -> String {
        self.run(&format!("touch {};burn {}", mib * 256, self.ms(minutes)))
    }

    /// Allocates 1.3 GiB, bit by bit.
    fn leaking(&self, minutes: f64) -> String {
        let step = format!("touch 3000;burn {};", self.ms(minutes / 110.0));
        self.run(&step.repeat(110))
    }

    /// Uses one core in each task of a step: the second task for less time.
    fn unbalanced(&self, mib: u64, first: f64, second: f64) -> String {
        let less = self.ms(first) - self.ms(second);
        let touch = mib * 256;
        format!(
            "srun sh -c '{} \"touch {touch};burn $(({} - {less} * SLURM_PROCID))\"'",
            self.workload.display(),
            self.ms(first)
        )
    }

    /// Waits until the job is released, then runs `command`.
    fn when_released(&self, command: &str) -> String {
        format!("while [ ! -e {}.$SLURM_JOB_ID ]; do sleep 0.05; done; {command}", self.released.display())
    }

    fn in_directory(command: &str) -> String {
        format!("d=$(mktemp -d) && cd $d && {command}; cd / && rm -r $d")
    }

    /// Reaches its time limit of a minute of Slurm's, the shortest. It leaves some of its core to the
    /// programs of the test.
    pub(super) fn over_time_limit(&self) -> Case {
        let minutes = 150_000.0 / self.minute_ms;
        let script = self.partly_busy(0.92, minutes);
        Case::of("time limit reached", "--time=1", script, &["time-limit-reached"]).ends("TIMEOUT")
    }

    /// Jobs that run beside that one: they need one core at a time.
    pub(super) fn light(&self) -> Vec<Vec<Case>> {
        let rest = |minutes: f64| self.run(&format!("rest {}", self.ms(minutes)));
        let hangs = self.run(&format!("burn {};rest {}", self.ms(5.2), self.ms(5.9)));
        let near_limit = self.run(&format!("touch {};rest {}", 965 * 256, self.ms(0.5).max(3000)));
        let small = Self::in_directory("dd if=/dev/zero of=f bs=4k count=12000 oflag=direct 2>&1");
        let faults = Self::in_directory(&format!("{} f {}", self.faults.display(), self.ms(2.5)));
        vec![
            vec![
                Case::of("idle node", "-N2 -n2", self.busy(6.0), &["idle-node"]).lasts(6.0),
                Case::of("50 ms", "", "sleep 0.05".to_owned(), &[]),
                Case::of("failed", "", format!("{}; exit 3", rest(2.0)), &[]).other().ends("FAILED"),
                Case::of("cancelled", "", rest(60.0), &[]).with(Intervention::Cancel).ends("CANCELLED"),
            ],
            vec![
                Case::of("serial code", "-c2", self.busy(6.0), &["serial-code"]).root().lasts(6.0),
                Case::of("out of memory", "--mem=30", format!("sleep 1; {TAKE_MEMORY}"), &["out-of-memory"])
                    .other()
                    .ends("OUT_OF_MEMORY")
                    .lasts(3.0),
            ],
            vec![Case::of("healthy, 1 core", "", self.busy(6.0), &[]).other().lasts(6.0)],
            vec![Case::of("leak", "--mem=2G", self.leaking(10.8), &["memory-growth"]).lasts(10.9)],
            vec![Case::of("hang", "", hangs, &["collapse"]).other().lasts(11.1)],
            vec![
                Case::of("throttled", "", self.when_released(&self.busy(2.7)), &["cpu-throttled"])
                    .with(Intervention::HalfCpu),
                Case::of("small writes", "", self.when_released(&small), &["small-writes"])
                    .other()
                    .with(Intervention::Cgroups(&["blkio"])),
                Case::of("page faults with I/O", "--mem=30", faults, &["major-faults"]),
            ],
            vec![
                Case::of("memory hog", "--mem=6G", self.holding(500, 5.8), &["memory-below-request"])
                    .lasts(5.9),
                // The kernel may count anonymous memory up to 2 s late.
                Case::of("memory near limit", "--mem=1000", near_limit, &["memory-near-limit"]).other(),
            ],
            vec![Case::of("idle cores", "-c4", self.partly_busy(0.5, 6.0), &["idle-cores"]).other()],
        ]
    }

    /// Jobs that need both cores of the machine.
    pub(super) fn heavy(&self) -> Vec<Vec<Case>> {
        let both = |minutes: f64| format!("srun {}", self.busy(minutes));
        let on_both = |mib: u64| format!("srun {}", self.holding(mib, 5.8));
        let stragglers = format!("{}; {}", both(5.4), self.partly_busy(0.1, 0.9));
        // The script goes on: the end of a step takes Slurm a second.
        let unbalanced = format!("{}; {}", self.unbalanced(5, 6.0, 2.8), self.busy(1.0));
        // Twice the length of the job or more, in whole minutes, as Slurm counts.
        let limit = if self.minute_ms < 60_000.0 { "--time=1" } else { "--time=33" };
        let threads = format!("{}wait", format!("{} & ", self.busy(3.0)).repeat(4));
        vec![
            vec![Case::of("healthy, 2 cores", "-n2", both(7.8), &[]).lasts(7.8)],
            // Together the tasks need more memory than the request of one node.
            vec![Case::of("healthy, 2 nodes", "-N2 -n2 --mem=200", on_both(150), &[]).other().lasts(5.9)],
            vec![Case::of("healthy array", "--array=1-2", self.busy(5.8), &[]).lasts(5.8)],
            vec![
                Case::of("too many nodes", "-N2 -n2 --mem=200", on_both(5), &["too-many-nodes"])
                    .root()
                    .lasts(5.9),
            ],
            vec![Case::of("rank imbalance", "-n2", unbalanced, &["rank-imbalance"]).other().lasts(7.0)],
            vec![
                Case::of(
                    "node imbalance",
                    "-N2 -n2 --mem=200",
                    self.unbalanced(150, 6.0, 2.8),
                    &["node-imbalance"],
                )
                .lasts(6.1),
            ],
            vec![Case::of("stragglers", "-n2", stragglers, &["stragglers"]).other().lasts(6.3)],
            vec![
                Case::of("too many threads", "", self.when_released(&threads), &["too-many-threads"])
                    .with(Intervention::Cgroups(&["pids", cgroup::V2])),
            ],
            vec![
                Case::of("agent killed", "", self.busy(6.5), &["data-gaps"])
                    .with(Intervention::KillAgent)
                    .lasts(6.5),
            ],
            vec![
                Case::of("node without agent", "-N2 -n2", both(5.8), &["silent-nodes"])
                    .other()
                    .with(Intervention::NoAgent)
                    .lasts(5.8),
            ],
            vec![
                Case::of("long time limit", limit, self.busy(15.8), &["oversized-time-limit"]).lasts(15.8),
                Case::of("very long time limit", "--time=300", self.busy(15.8), &["unused-time-limit"])
                    .other()
                    .lasts(15.8),
            ],
        ]
    }
}
