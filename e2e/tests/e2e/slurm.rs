//! Jobs of a real Slurm, with the prolog and the epilog of `deploy/`: the first and the last sample of each
//! job are stored, however the job ends, and so is the prolog's data.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use polymeter_e2e::cgroup;
use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::slurm::{Cluster, TAKE_MEMORY, USER, agent_config};
use polymeter_e2e::stored::{self, Key, Series};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, now_us, require, wait_until};
use polymeter_store::reader::{JobRow, SeriesScope};
use rusqlite::Connection;

tests![
    exclusive slurm_jobs_of_all_kinds_are_tracked_completely,
    exclusive mpi_job_is_tracked_on_both_nodes,
    exclusive requeued_job_is_new_and_suspended_job_is_not,
    exclusive prolog_cost_and_final_sample_coverage,
];

/// The last metric is due once a day: its only samples are the first and the last one.
const BASELINE: &str = "[baseline]\n\"cpu.usage\" = \"1s\"\n\"memory.peak\" = \"1s\"\n\"memory.events.max\" = \"1s\"\n\"cpu.user\" = \"1d\"\n\
    [steps]\n\"cpu.usage\" = \"1s\"\n";

/// Uses the CPU, and runs long enough to be discovered while many other jobs start on two CPUs.
const BURN: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.3";

struct Fixture {
    cluster: Cluster,
    collector: Daemon,
    env: TestEnvironment,
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnvironment::new();
        let socket = env.path("control.sock");
        let control = format!("control_socket = \"{}\"\n", socket.display());
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &control);
        Self {
            cluster: Cluster::start(&socket, |node, _| agent_config(node, &endpoint, BASELINE)),
            collector,
            env,
        }
    }

    /// Samples of an ended job on all its nodes, without those of its steps.
    fn samples(&self, row: &JobRow) -> BTreeMap<Key, Series> {
        let mut reader = self.env.reader();
        let mut all: BTreeMap<Key, Series> = BTreeMap::new();
        let series = reader.series(SeriesScope::Job(row.job_key)).unwrap();
        for series in series.into_iter().filter(|series| series.labels.is_empty()) {
            let points = reader.points(series.series_id, i64::MIN..i64::MAX).unwrap();
            let points = points.into_iter().map(|(time_ns, value)| (time_ns / 1000, value)).collect();
            all.insert((series.metric, series.node), Series { kind: series.kind, points });
        }
        all
    }

    /// Sampled steps of a job, with their nodes.
    fn steps(&self, row: &JobRow) -> BTreeSet<(String, String)> {
        let series = self.env.reader().series(SeriesScope::Job(row.job_key)).unwrap();
        let steps = series.into_iter().filter(|series| !series.labels.is_empty());
        steps.map(|series| (series.labels.to_string(), series.node)).collect()
    }

    /// Waits until a job is stored with this state, exit status and signal, as the controller reports them.
    /// The nodes' epilogs do not know the state.
    fn assert_outcome(&self, job: &str, state: &str, code: i64, signals: &[i64]) {
        wait_until(&format!("job {job} is stored as {state}"), || {
            stored::job(&mut self.env.reader(), job).is_some_and(|row| row.state.as_deref() == Some(state))
        });
        let row = stored::job(&mut self.env.reader(), job).unwrap();
        assert_eq!(row.exit_code, Some(code), "job {job}: {row:?}");
        assert!(row.exit_signal.is_some_and(|signal| signals.contains(&signal)), "job {job}: {row:?}");
    }

    /// Checks that the controller's scripts reported the name, Slurm's id and the requested resources of a
    /// job.
    fn assert_details(&self, job: &str, display_id: Option<&str>, memory_mib: i64) {
        wait_until(&format!("the name of job {job} is stored"), || {
            stored::job(&mut self.env.reader(), job).is_some_and(|row| row.name.is_some())
        });
        let row = stored::job(&mut self.env.reader(), job).unwrap();
        assert_eq!((row.name.as_deref(), row.display_id.as_deref()), (Some("wrap"), display_id), "{row:?}");
        assert_eq!((row.time_limit_s, row.memory_bytes), (Some(600), Some(memory_mib << 20)), "{row:?}");
        assert_eq!(row.gpus, None);
    }

    fn assert_refusal_is_stored(&self, job: &str) {
        let row = stored::job(&mut self.env.reader(), job).unwrap();
        let requests = self.env.reader().refused_requests(row.job_key).unwrap();
        assert!(requests.iter().any(|request| request.request.contains("cpu.usge")), "{requests:?}");
    }

    /// Waits for the time limit of a job. Slurm checks the limits every 30 s.
    fn assert_timeout(&self, job: &str) {
        wait_until("the time limit comes near", || {
            self.cluster.of_job(job, "RunTime").as_str() >= "00:00:50"
        });
        self.cluster.wait_for(job, &["COMPLETING", "TIMEOUT"]);
        self.assert_complete(job, 1);
        self.assert_outcome(job, "TIMEOUT", 0, &[15]);
    }

    /// Checks that an ended job has its first and its last sample on each of its nodes, and the prolog's
    /// data.
    fn assert_complete(&self, job: &str, nodes: u32) -> BTreeMap<Key, Series> {
        let row = stored::wait_for_end(&self.env, job);
        // A job has ended when its first node reports the end; the reports of the other nodes may follow
        // later.
        let store = Connection::open(self.env.path("store.db")).unwrap();
        wait_until(&format!("job {job} has ended on {nodes} nodes"), || {
            let ended = "SELECT count(*) FROM job_node WHERE job_key = ?1 AND ended IS NOT NULL";
            store.query_row(ended, [row.job_key], |row| row.get::<_, u32>(0)).unwrap() == nodes
        });
        assert_eq!(row.cluster.as_deref(), Some("lab"));
        let samples = self.samples(&row);
        for node in &stored::job(&mut self.env.reader(), job).unwrap().nodes {
            let points = |metric: &str| samples[&(metric.to_owned(), node.clone())].points.len();
            assert!(points("cpu.user") >= 2, "job {job} on {node}: {samples:?}");
            assert!(points("memory.peak") >= 2, "job {job} on {node}: {samples:?}");
        }
        samples
    }
}

fn last(samples: &BTreeMap<Key, Series>, metric: &str) -> f64 {
    let of_metric = samples.iter().filter(|((name, _), _)| name == metric);
    of_metric.filter_map(|(_, series)| Some(series.points.last()?.1)).sum()
}

fn slurm_jobs_of_all_kinds_are_tracked_completely() {
    require(&[Need::Root, Need::Slurm]);
    let fixture = Fixture::new();
    let cluster = &fixture.cluster;
    // The shortest time limit is one minute; the other jobs end before it.
    let endless = cluster.submit(true, &["--time=1"], "sleep 600");
    // A tenth of a second is enough, also for the agent that this job's prolog starts.
    let short = cluster.submit(false, &[], "sleep 0.1");
    let row = stored::wait_for_end(&fixture.env, &short);
    assert_eq!((row.owner.as_deref(), row.owner_uid), (Some("root"), Some(0)));
    fixture.assert_complete(&short, 1);
    let comment = "--comment=polymeter: cpu.user=20ms for 1h";
    let with_request = cluster.submit(true, &[comment], &format!("{BURN}; sleep 1"));
    let refused = cluster.submit(true, &["--comment=polymeter: cpu.usge=1s"], "sleep 0.5");
    let array = cluster.submit(true, &["--array=1-3"], BURN);
    // A job of two components; each is a job of its own to its node.
    let heterogeneous = cluster.submit(true, &["-n1", ":", "-n1"], BURN);
    let two_nodes = cluster.submit(true, &["-N2", "-n2", "-A", "physics"], &format!("srun sh -c '{BURN}'"));
    // This job uses more memory than its limit.
    let over_limit = cluster.submit(true, &["--mem=30"], &format!("sleep 0.3; {TAKE_MEMORY}"));
    let failing = cluster.submit(false, &[], "sleep 0.3; exit 3");
    let cancelled = cluster.submit(true, &[], "sleep 600");
    cluster.wait_for(&cancelled, &["RUNNING"]);
    wait_until("the cancelled job is stored", || {
        stored::job(&mut fixture.env.reader(), &cancelled).is_some_and(|row| row.ended_ns.is_none())
    });
    assert!(cluster.run("scancel", &[&cancelled]).status.success());

    let row = stored::wait_for_end(&fixture.env, &with_request);
    assert_eq!((row.owner.as_deref(), row.owner_uid), (Some(USER.2), Some(USER.0.into())));
    let samples = fixture.assert_complete(&with_request, 1);
    let requested_series = samples.iter().find(|((metric, _), _)| metric == "cpu.user").unwrap();
    assert!(requested_series.1.points.len() > 5, "{requested_series:?}");
    fixture.assert_complete(&refused, 1);
    let first = cluster.of_job(&array, "JobId");
    let ids = (0..3).map(|task| cluster.of_job(&format!("{array}_{}", task + 1), "JobId"));
    for task in ids.chain([first.clone()]) {
        assert!(last(&fixture.assert_complete(&task, 1), "cpu.usage") > 0.0);
    }
    let components =
        ["0", "1"].map(|component| cluster.of_job(&format!("{heterogeneous}+{component}"), "JobId"));
    assert_eq!(components[0], heterogeneous);
    for component in &components {
        fixture.assert_complete(component, 1);
    }
    fixture.assert_complete(&two_nodes, 2);
    let samples = fixture.assert_complete(&over_limit, 1);
    cluster.wait_for(&over_limit, &["OUT_OF_MEMORY"]);
    assert!(last(&samples, "memory.peak") <= 30.0 * 1024.0 * 1024.0, "{samples:?}");
    assert!(last(&samples, "memory.peak") > 20.0 * 1024.0 * 1024.0, "{samples:?}");
    fixture.assert_complete(&failing, 1);
    let row = stored::job(&mut fixture.env.reader(), &two_nodes).unwrap();
    let steps = fixture.steps(&row);
    for node in &row.nodes {
        assert!(steps.contains(&("step=0".to_owned(), node.clone())), "{steps:?}");
    }
    assert_eq!(
        (row.account.as_deref(), row.queue.as_deref(), row.cores),
        (Some("physics"), Some("p"), Some(2))
    );
    fixture.assert_complete(&cancelled, 1);
    fixture.assert_outcome(&over_limit, "OUT_OF_MEMORY", 0, &[125]);
    fixture.assert_outcome(&failing, "FAILED", 3, &[0]);
    fixture.assert_details(&over_limit, None, 30);
    fixture.assert_details(&first, Some(&format!("{array}_3")), 100);
    fixture.assert_details(&components[1], Some(&format!("{heterogeneous}+1")), 100);
    // SIGKILL if its script had not begun when SIGTERM was sent.
    fixture.assert_outcome(&cancelled, "CANCELLED", 0, &[15, 9]);
    fixture.assert_outcome(&short, "COMPLETED", 0, &[0]);
    fixture.assert_refusal_is_stored(&refused);
    fixture.assert_timeout(&endless);
    let stderr = cluster.scripts_stderr();
    assert!(stderr.lines().all(|line| line.contains("cpu.usge")), "{stderr}");
    assert_nothing_left(fixture);
}

/// An MPI program whose ranks compute and exchange data for half a second.
const MPI: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    int main(int argc, char **argv) {
        int rank, size;
        double part = 1, sum = 0, until;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        until = MPI_Wtime() + 0.5;
        for (int again = 1; again;) {
            MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            again = MPI_Wtime() < until;
            MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        if (rank == 0) printf("%d ranks, sum %g\n", size, sum);
        MPI_Finalize();
    }"#;

fn mpi_job_is_tracked_on_both_nodes() {
    require(&[Need::Root, Need::Slurm]);
    let fixture = Fixture::new();
    let path = |name: &str| fixture.cluster.path(name);
    std::fs::write(path("mpi.c"), MPI).unwrap();
    let compiled = Command::new("mpicc.mpich").arg("-o").args([path("mpi"), path("mpi.c")]).status().unwrap();
    assert!(compiled.success());
    let (program, printed) = (path("mpi"), path("mpi.out"));
    let run = format!(
        "mpiexec.hydra -bootstrap slurm -n 2 -ppn 1 {} > {} 2>&1",
        program.display(),
        printed.display()
    );
    let job = fixture.cluster.submit(false, &["-N2", "--ntasks-per-node=1"], &run);
    let samples = fixture.assert_complete(&job, 2);
    assert_eq!(std::fs::read_to_string(printed).unwrap(), "2 ranks, sum 2\n");
    for node in &fixture.cluster.nodes {
        let used = samples[&("cpu.usage".to_owned(), node.clone())].points.last().unwrap().1;
        assert!(used > 1e8, "a rank was busy on {node} for half a second: {used} ns");
    }
    assert_nothing_left(fixture);
}

/// Checks that every agent ends by itself and that no cgroup of a job is left.
fn assert_nothing_left(fixture: Fixture) {
    for node in &fixture.cluster.nodes {
        wait_until("the agents end when there are no jobs", || fixture.cluster.agent(node).is_none());
        for hierarchy in ["memory", "cpuacct"].into_iter().filter_map(cgroup::root) {
            let users = std::fs::read_dir(hierarchy.join(format!("slurm_{node}"))).into_iter().flatten();
            let left =
                users.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("uid_"));
            assert_eq!(left.count(), 0);
        }
    }
    drop(fixture.cluster);
    fixture.collector.terminate();
}

fn requeued_job_is_new_and_suspended_job_is_not() {
    require(&[Need::Root, Need::Slurm]);
    let fixture = Fixture::new();
    let cluster = &fixture.cluster;
    let job = cluster.submit(true, &["--requeue"], "sleep 600");
    wait_until("it is tracked", || is_running(&fixture, &job, 1));
    for verb in ["suspend", "resume"] {
        assert!(cluster.run("scontrol", &[verb, &job]).status.success());
        cluster.wait_for(&job, &[if verb == "suspend" { "SUSPENDED" } else { "RUNNING" }]);
    }
    assert!(is_running(&fixture, &job, 1), "{:?}", rows_of(&fixture, &job));
    assert!(cluster.run("scontrol", &["requeue", &job]).status.success());
    wait_until("it has ended", || rows_of(&fixture, &job).iter().any(|row| row.ended_ns.is_some()));
    // Slurm may hold a requeued job back for a while.
    let update = format!("jobid={job}");
    wait_until("it may begin again", || {
        // The command fails if the job runs already.
        cluster.run("scontrol", &["update", &update, "starttime=now"]);
        is_running(&fixture, &job, 2)
    });
    assert!(cluster.run("scancel", &[&job]).status.success());
    wait_until("it has ended for good", || rows_of(&fixture, &job).iter().all(|row| row.ended_ns.is_some()));
    assert_nothing_left(fixture);
}

fn is_running(fixture: &Fixture, job: &str, count: usize) -> bool {
    rows_of(fixture, job).iter().filter(|row| row.ended_ns.is_none()).count() == 1
        && rows_of(fixture, job).len() == count
}

fn rows_of(fixture: &Fixture, job: &str) -> Vec<JobRow> {
    let mut rows = stored::jobs(&mut fixture.env.reader());
    rows.retain(|row| row.job_id == job);
    rows
}

/// Measures the time that a prolog takes, and the share of a job's CPU time that its last sample contains.
/// The result is printed; nothing is asserted.
fn prolog_cost_and_final_sample_coverage() {
    require(&[Need::Root, Need::SlurmExperiment, Need::Slurm]);
    let fixture = Fixture::new();
    let cluster = &fixture.cluster;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        with.push(srun_us(cluster));
        cluster.disable_scripts(true);
        without.push(srun_us(cluster));
        cluster.disable_scripts(false);
    }
    println!(
        "srun true, median of 20: {:.1} ms, with an empty prolog {:.1} ms",
        median_ms(&mut with),
        median_ms(&mut without)
    );
    let mut shares = Vec::new();
    for _ in 0..20 {
        // The job records its own CPU usage as late as it can, in clock ticks of 10 ms.
        let used = cluster.path("used");
        std::fs::remove_file(&used).ok();
        let script = format!(
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; cat /sys/fs/cgroup/cpuacct/$(sed -n 's/.*cpuacct:.//p' /proc/self/cgroup | sed 's,/step_.*,,')/cpuacct.usage > {}",
            used.display()
        );
        let job = cluster.submit(false, &[], &script);
        let row = stored::wait_for_end(&fixture.env, &job);
        let samples = fixture.samples(&row);
        let used_ns: f64 = std::fs::read_to_string(&used).unwrap().trim().parse().unwrap();
        shares.push(last(&samples, "cpu.usage") / used_ns * 100.0);
    }
    shares.sort_by(f64::total_cmp);
    println!(
        "CPU time in the last sample, of the CPU time that the job recorded: min {:.2} %, median {:.2} %, max {:.2} %",
        shares[0],
        shares[shares.len() / 2],
        shares[shares.len() - 1]
    );
    drop(fixture.cluster);
    fixture.collector.terminate();
}

fn median_ms(times: &mut [i64]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1000.0
}

fn srun_us(cluster: &Cluster) -> i64 {
    let began_us = now_us();
    assert!(cluster.run("srun", &["true"]).status.success());
    now_us() - began_us
}
