//! Memory that is full, of jobs and of the agent: rings, dumps and triggers hold. Real cgroups and real OOM
//! kills.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use polymeter_e2e::cgroup::{Job, MemoryLimit, TestCgroups};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{TestEnvironment, as_user, pause, require, skip, tests, wait_until, workload};
use serde_json::json;

tests![
    exclusive an_oom_kill_fires_once_though_the_cgroups_vanish_and_return,
    an_oom_kill_belongs_to_the_owner_of_its_cgroup,
    exclusive the_memory_of_an_agent_is_bounded_while_dumps_wait,
    exclusive an_agent_that_the_kernel_kills_for_memory_leaves_an_unknown_end,
];

const BASELINE: [(&str, &str); 2] = [("memory.*", "200ms"), ("cpu.usage", "200ms")];
const RING: &str = "[hindsight]\nkeep = \"30s\"\n[hindsight.metrics]\n\"memory.current\" = \"20ms\"\n";
const OOM: &str = "[[trigger]]\nname = \"oom\"\nwhen = \"oom\"\nkeep = \"2s\"\nafter = \"1s\"\n";

/// Samples without a fate, and rows of which the ledger does not know: 0.
const WITHOUT_FATE: &str = "SELECT sum(unknown) + abs(sum(stored) - (SELECT count(*) FROM samples)
    - (SELECT count(*) FROM kept_sample)) FROM ledger_balance";

/// Limits the memory of a job, with swap.
fn limit(job: &Job, bytes: &str) {
    let directory = job.directory_below("memory");
    fs::write(directory.join("memory.limit_in_bytes"), bytes).unwrap();
    fs::write(directory.join("memory.memsw.limit_in_bytes"), bytes).ok();
}

fn oom_kills(job: &Job) -> u64 {
    let text = fs::read_to_string(job.directory_below("memory").join("memory.oom_control")).unwrap();
    let number = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    number.unwrap_or_else(|| skip("cgroup1", "the kernel does not count kills")).parse().unwrap()
}

/// A shell in a job that waits for a line, and then wants four times the memory that it may have.
struct Greedy(Child);

impl Greedy {
    fn start(job: &Job) -> Self {
        let enter: String = job
            .directories
            .iter()
            .map(|directory| format!("echo $$ > {}/cgroup.procs; ", directory.display()))
            .collect();
        let script = format!("{enter} read -r gate; {} 'touch 16384'; :", workload::program().display());
        Self(Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Lets the kernel kill it, and waits for the end of the job's last process.
    fn end(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        self.0.wait().unwrap();
    }
}

/// Firings by job id, and nodes with its kept intervals, those of all its cgroups.
fn firings(env: &TestEnvironment) -> BTreeMap<String, (usize, usize)> {
    let sql = "SELECT job_id, count(DISTINCT f.trigger_id), count(DISTINCT f.trigger_id || k.node)
        FROM trigger_firing AS f JOIN job USING (job_key) LEFT JOIN kept_interval AS k
            ON k.trigger_id = f.trigger_id AND k.job_key = f.job_key
                AND k.started = f.started AND k.ended = f.ended
        GROUP BY job_id";
    let rows = env.query(sql);
    let rows = rows.lines().map(|row| {
        let columns: Vec<&str> = row.split('|').collect();
        (columns[0].to_owned(), (columns[1].parse().unwrap(), columns[2].parse().unwrap()))
    });
    rows.collect()
}

/// Times between the end of the last process and the removal of its cgroups, in milliseconds. Schedulers take
/// some milliseconds.
const REMOVED_AFTER_MS: [u64; 8] = [5, 5, 10, 20, 40, 80, 150, 300];

/// Times after which the cgroups return with the same name.
const RETURNS_AFTER_MS: [u64; 3] = [0, 3, 400];

/// Waits until the jobs whose cgroups are gone have ended: their ids then name jobs of their own.
fn wait_for_ends(agents: &[Agent], jobs: &[Option<Job>]) {
    for agent in agents {
        wait_until("removed jobs have ended", || {
            agent.jobs().iter().all(|id| jobs[id.parse::<usize>().unwrap()].is_some())
        });
    }
}

fn an_oom_kill_fires_once_though_the_cgroups_vanish_and_return() {
    const ROUNDS: usize = 4;
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let nodes = [(); 2].map(|()| TestEnvironment::new());
    // The rule is on the first node alone.
    let tables = [format!("{RING}{OOM}"), RING.to_owned()];
    let agents = [0, 1].map(|number| {
        let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
        Agent::start_with(&nodes[number], &plan, "", &tables[number])
    });
    let mut killed = BTreeMap::<String, usize>::new();
    let mut jobs: Vec<Option<Job>> = REMOVED_AFTER_MS.iter().map(|_| None).collect();
    for round in 0..ROUNDS {
        for (number, job) in jobs.iter_mut().enumerate() {
            job.get_or_insert_with(|| cgroups.job(&number.to_string()));
        }
        let of_round: Vec<Job> = jobs.iter_mut().filter_map(Option::take).collect();
        let greedy: Vec<Greedy> = of_round
            .iter()
            .map(|job| {
                limit(job, "16M");
                Greedy::start(job)
            })
            .collect();
        for agent in &agents {
            of_round.iter().for_each(|job| agent.wait_until_tracked(&job.id, &["v1/memory.oom_control"]));
        }
        pause(1500);
        for (number, (job, greedy)) in of_round.into_iter().zip(greedy).enumerate() {
            let before = oom_kills(&job);
            greedy.end();
            pause(REMOVED_AFTER_MS[number]);
            let kills = oom_kills(&job) - before;
            assert_eq!(kills, 1, "job {number}");
            *killed.entry(job.id.clone()).or_default() += 1;
            job.remove();
            if number % 2 == 1 {
                pause(RETURNS_AFTER_MS[(number / 2 + round) % RETURNS_AFTER_MS.len()]);
                jobs[number] = Some(cgroups.job(&number.to_string()));
            }
        }
        wait_for_ends(&agents, &jobs);
    }
    drop(jobs);
    let expected: BTreeMap<String, (usize, usize)> =
        killed.into_iter().map(|(job, kills)| (job, (kills, 2 * kills))).collect();
    for _ in 0..100 {
        if firings(&env) == expected {
            break;
        }
        pause(300);
    }
    let listed = env.query(
        "SELECT job_id, job_key, node, time, actions
        FROM trigger_firing JOIN job USING (job_key) ORDER BY 1, 2",
    );
    assert_eq!(firings(&env), expected, "{listed}\n{}", env.query("SELECT * FROM kept_interval"));
    wait_until("all nodes are recorded", || {
        env.query("SELECT count(*) FROM trigger_firing WHERE nodes_asked = 2 AND nodes_missing = '{}'")
            == (ROUNDS * REMOVED_AFTER_MS.len()).to_string()
    });
    agents.into_iter().for_each(|agent| drop(agent.daemon.terminate()));
    wait_until("each sample has one fate", || env.query(WITHOUT_FATE) == "0");
    assert_eq!(firings(&env), expected, "nothing fired later");
    let of_kept = "SELECT (SELECT count(*) FROM kept_sample) - (SELECT sum(samples) FROM kept_interval)";
    assert_eq!(env.query(of_kept), "0");
    collector.terminate();
}

/// Two users have jobs of one id: the second is tracked when the first has gone.
fn an_oom_kill_belongs_to_the_owner_of_its_cgroup() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let pattern = format!("{}/uid_{{uid}}/job_{{job}}", cgroups.name);
    let plan = Plan { collector: &endpoint, jobs: &[pattern], baseline: &BASELINE };
    let agent = Agent::start_with(&env, &plan, "", RING);
    fs::set_permissions(env.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let owners = [OWNER, OTHER_USER];
    let parents = owners.map(|owner| cgroups.parent(&format!("uid_{owner}")));
    let add = |uid: u32, name: &str| {
        let rule = json!({"name": name, "when": "oom", "keep": "2s", "after": "1s"});
        as_user((uid, uid), || agent.ask(&json!({"verb": "trigger_add", "job": "7", "rule": rule})))
    };
    let fired = |uid: u32| as_user((uid, uid), || agent.ask(&json!({"verb": "triggers", "job": "7"})));
    let keep = |uid: u32| {
        let keep = json!({"verb": "keep_last", "job": "7", "last": "5s", "reason": "mine"});
        as_user((uid, uid), || agent.ask(&keep))
    };
    let begin = |number: usize| {
        let job = parents[number].step("job_7");
        limit(&job, "16M");
        let greedy = Greedy::start(&job);
        (job, greedy)
    };
    let (first, greedy_first) = begin(0);
    agent.wait_until_tracked("7", &["v1/memory.oom_control"]);
    assert_eq!(add(OWNER, "of-first")["answer"], "trigger_added");
    // The other user's job of this id, beside it.
    let (second, greedy_second) = begin(1);
    pause(1500);
    assert_eq!(
        (&add(OTHER_USER, "x")["answer"], &keep(OTHER_USER)["answer"]),
        (&json!("refused"), &json!("refused"))
    );
    greedy_second.end();
    assert_eq!((oom_kills(&second), oom_kills(&first)), (1, 0));
    pause(1500);
    assert_eq!(fired(OWNER)["fired"], json!([]), "the kill was in the cgroup of another user");
    second.remove();
    greedy_first.end();
    wait_until("the trigger of the first owner fires", || {
        fired(OWNER)["fired"].as_array().is_some_and(|f| f.len() == 1)
    });
    first.remove();

    // The id returns for the other user.
    let (second, greedy_second) = begin(1);
    wait_until("the job of the second owner is tracked", || {
        add(OTHER_USER, "of-second")["answer"] == "trigger_added"
    });
    assert_eq!(fired(OWNER)["answer"], "refused", "{}", fired(OWNER));
    agent.wait_until_tracked("7", &["v1/memory.oom_control"]);
    wait_until("the ring has samples", || keep(OTHER_USER)["answer"] == "keeps");
    greedy_second.end();
    wait_until("the trigger of the second owner fires", || {
        fired(OTHER_USER)["fired"].as_array().is_some_and(|fired| fired.len() == 1)
    });
    let listed = fired(OTHER_USER);
    assert_eq!(
        (&listed["fired"][0]["name"], listed["triggers"].as_array().unwrap().len()),
        (&json!("of-second"), 1)
    );
    second.remove();
    wait_until("both are stored", || {
        env.query("SELECT rule || ' ' || owner_uid FROM trigger_firing JOIN job USING (job_key) ORDER BY 1")
            == format!("of-first {OWNER}\nof-second {OTHER_USER}")
    });
    wait_until("both rings are kept", || {
        env.query("SELECT count(*) FROM kept_interval WHERE reason LIKE 'of-%'") == "2"
    });
    drop(parents);
    agent.daemon.terminate();
    collector.terminate();
}

/// Resident memory of a process in KiB, without that of its program and libraries, which an agent returns and
/// maps again.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

const RING_KIB: u64 = 64;

/// Dumps of one ring that may wait.
const WAITING: usize = 16;

/// Tables with rings of this size, which are filled within seconds.
fn full_rings(memory: &str) -> String {
    format!(
        "[hindsight]\nkeep = \"1min\"\nmemory = \"{memory}\"\n[hindsight.metrics]\n\
         \"memory.*\" = \"5ms\"\n\"cpu.*\" = \"5ms\"\n"
    )
}

fn the_memory_of_an_agent_is_bounded_while_dumps_wait() {
    const JOBS: u64 = 40;
    const OUTBOX_KIB: u64 = 2048;
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
    let (first_collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("cpu.usage", "1s")] };
    let keys = format!("outbox_bytes = \"{OUTBOX_KIB}KiB\"\n");
    let agent = Agent::start_with(&env, &plan, &keys, &full_rings("64KiB"));
    let jobs: Vec<(Job, Sleeper)> = (0..JOBS)
        .map(|number| {
            let (job, sleeper) = (cgroups.job(&number.to_string()), Sleeper::start());
            job.enter(sleeper.pid());
            (job, sleeper)
        })
        .collect();
    for (job, _) in &jobs {
        agent.wait_until_tracked(&job.id, &["v1/memory.stat"]);
    }
    let pid = agent.daemon.pid();
    let begin_kib = resident_kib(pid);
    first_collector.kill();
    let keep = |job: &Job, number: usize| {
        let keep = json!({"verb": "keep_last", "job": job.id, "last": "20s", "reason": format!("{number}")});
        agent.ask(&keep)["answer"] == "keeps"
    };
    let dump_all = |number: usize| jobs.iter().filter(|(job, _)| keep(job, number)).count();
    // It grows until all rings are full, and each has as many dumps as may wait: then 20 more change nothing.
    let (mut promised, mut dumps, mut most_kib) = (0, 0, begin_kib);
    let (mut same_kib, mut same_since) = (begin_kib, 0);
    while dumps < same_since + 20 || promised < jobs.len() * WAITING {
        assert!(
            dumps < 400,
            "after {promised} dumps it grows still: {begin_kib}, {same_kib}, {most_kib} KiB"
        );
        pause(500);
        promised += dump_all(dumps);
        dumps += 1;
        let kib = resident_kib(pid);
        most_kib = most_kib.max(kib);
        if kib > same_kib + JOBS * RING_KIB / 16 {
            (same_kib, same_since) = (kib, dumps);
        }
    }
    println!("{JOBS} rings of {RING_KIB} KiB, {promised} dumps: {begin_kib}, at most {most_kib} KiB");
    // A ring, as much of it that waits to be sent, its newest rows and a segment; and the outbox.
    let bound_kib = begin_kib + JOBS * (2 * RING_KIB + 192) + OUTBOX_KIB;
    assert!(most_kib <= bound_kib, "{begin_kib} KiB became {most_kib} KiB; at most {bound_kib} are expected");
    let (second_collector, _) = collector(&env, &endpoint);
    let is_stored = || env.query("SELECT count(*) FROM kept_interval") == promised.to_string();
    // A busy machine stores for minutes: first what was sampled meanwhile, then all rings in turns.
    let rows = "SELECT (SELECT count(*) FROM samples) + (SELECT count(*) FROM kept_sample)";
    while !is_stored() {
        let before = env.query(rows);
        wait_until("more is stored", || is_stored() || env.query(rows) != before);
    }
    for (job, sleeper) in jobs {
        drop(sleeper);
        job.remove();
    }
    agent.daemon.terminate();
    wait_until("each sample has one fate", || env.query(WITHOUT_FATE) == "0");
    let wrong = "SELECT count(*) FROM ledger_balance WHERE due <> taken + missed + absent";
    assert_eq!(env.query(wrong), "0");
    second_collector.terminate();
}

/// The cgroup of the agent has hardly more memory than the agent: it runs on, or the kernel kills it in the
/// middle of a dump, and its successor goes on.
fn an_agent_that_the_kernel_kills_for_memory_leaves_an_unknown_end() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let node = TestEnvironment::new();
    let memory = MemoryLimit::new();
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let begin =
        || Agent::start_within(&node, &plan, "", &full_rings("1MiB"), |program| memory.within(&program));
    let jobs: Vec<(Job, Sleeper)> = (0..10)
        .map(|number| {
            let (job, sleeper) = (cgroups.job(&number.to_string()), Sleeper::start());
            job.enter(sleeper.pid());
            (job, sleeper)
        })
        .collect();
    let mut killed = Vec::new();
    for _ in 0..3 {
        memory.lift();
        let mut agent = begin();
        jobs.iter().for_each(|(job, _)| agent.wait_until_tracked(&job.id, &["v1/memory.stat"]));
        wait_until("the rings have samples", || {
            let keep = json!({"verb": "keep_last", "job": "0", "last": "5s", "reason": "early"});
            agent.ask(&keep)["answer"] == "keeps"
        });
        pause(2000);
        let session = agent.status()["session"].as_str().unwrap().to_owned();
        for (job, _) in &jobs {
            let keep = json!({"verb": "keep_last", "job": job.id, "last": "20s", "reason": "dump"});
            agent.ask(&keep);
        }
        memory.squeeze(&mut agent.daemon);
        killed.push(session);
        drop(agent);
        // A successor leaves a session open that is being stored.
        let sql = format!(
            "SELECT last_sequence FROM session WHERE session_id = '{}' FOR UPDATE SKIP LOCKED",
            killed[killed.len() - 1]
        );
        wait_until("what the collector has received is stored", || {
            let before = env.query(&sql);
            pause(1500);
            !before.is_empty() && env.query(&sql) == before
        });
    }
    memory.lift();
    let agent = begin();
    jobs.iter().for_each(|(job, _)| agent.wait_until_tracked(&job.id, &["v1/memory.stat"]));
    wait_until("the ends of all sessions are known", || {
        let list: Vec<String> = killed.iter().map(|session| format!("'{session}'")).collect();
        let sql = format!(
            "SELECT count(DISTINCT session_id) FROM session JOIN loss USING (session_id, node)
             WHERE session_id IN ({}) AND end_reason = 'superseded' AND reason = 'unknown'",
            list.join(", ")
        );
        env.query(&sql) == killed.len().to_string()
    });
    for (job, sleeper) in jobs {
        drop(sleeper);
        job.remove();
    }
    agent.daemon.terminate();
    assert_rows_are_those_of_the_ledger(&env);
    collector.terminate();
}

/// Rows of the samples and those that the ledger says are stored, of each session.
fn assert_rows_are_those_of_the_ledger(env: &TestEnvironment) {
    let sql = "SELECT (SELECT count(*) FROM samples) + (SELECT count(*) FROM kept_sample) - sum(stored)
        FROM ledger_balance";
    wait_until("rows are those of the ledger", || env.query(sql) == "0");
    let twice =
        "SELECT count(*) FROM (SELECT series_id, time FROM kept_sample GROUP BY 1, 2 HAVING count(*) > 1
        UNION ALL SELECT series_id, time FROM samples GROUP BY 1, 2 HAVING count(*) > 1) AS twice";
    assert_eq!(env.query(twice), "0");
    let wrong = "SELECT count(*) FROM ledger_balance WHERE due <> taken + missed + absent
        OR taken <> stored + dropped + not_kept + rejected + quarantined + unknown + skipped";
    assert_eq!(env.query(wrong), "0");
}
