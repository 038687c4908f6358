//! Parts of the manual pages that do not follow from the definitions of the commands, as data.

#[derive(Debug)]
pub struct Supplement {
    /// Full name.
    pub command: &'static str,
    /// Empty if they are the usual ones.
    pub exit_status: &'static [Entry],
    pub environment: &'static [Entry],
    pub files: &'static [Entry],
    pub examples: &'static [Entry],
}

pub(super) type Entry = (&'static str, &'static str);

pub(super) const EXIT_STATUS: &[Entry] = &[
    ("0", "Success."),
    ("1", "The request was refused, or failed."),
    ("2", "Wrong usage."),
    ("3", "The agent or the collector cannot be reached."),
];

const RUN_STATUS: &[Entry] = &[
    ("N", "The exit status of the command; 128 + N if signal N ended it."),
    ("1", "The samples or the report could not be written."),
    ("2", "Wrong usage."),
    ("126, 127", "The command cannot be executed, or was not found."),
];
const HOOK_STATUS: &[Entry] = &[
    ("0", "Success; without --strict also a failure, which is reported on stderr and to syslog."),
    (
        "1, 2, 3",
        "With --strict: the request failed, wrong usage, the agent or the collector cannot be reached.",
    ),
];
const DOCTOR_STATUS: &[Entry] = &[
    ("0", "No problem. There may be warnings."),
    ("1", "A problem was found."),
    ("2", "Wrong usage, or the examination could not run."),
];
const CHECK_STATUS: &[Entry] = &[
    ("0", "OK."),
    ("1", "WARNING."),
    ("2", "CRITICAL."),
    ("3", "UNKNOWN: wrong usage, or the state cannot be found out."),
];
const SETUP_STATUS: &[Entry] = &[
    ("0", "Done, or nothing to do."),
    ("1", "Something failed, or a file that was changed by hand was left as it is."),
    ("2", "Wrong usage."),
];
const LOCAL_STATUS: &[Entry] = &[("0", "Success."), ("1", "Failure."), ("2", "Wrong usage.")];
const AGENT_STATUS: &[Entry] = &[
    ("0", "Stopped as requested."),
    ("1", "Failed."),
    ("2", "Invalid command line, configuration or keys."),
];
const COLLECTOR_STATUS: &[Entry] = &[
    ("0", "Stopped as requested."),
    ("1", "Failed."),
    ("2", "Invalid command line, configuration or keys."),
    ("3", "An endpoint or the store cannot be opened."),
];

const JOB: Entry = ("SLURM_JOB_ID, OAR_JOB_ID", "The job, if none is named.");
const RUN: Entry = (
    "POLYMETER_SOCKET, POLYMETER_JOB_ID, POLYMETER_RUN_STORE",
    "The agent, the job and the samples of the `polymeter run` around the command, which sets them. They come first.",
);
const COLLECTOR: Entry = (
    "POLYMETER_COLLECTOR",
    "The collector: tcp://HOST:PORT, or the path of its socket. It overrides client.toml.",
);
const COLOUR: Entry = ("NO_COLOR", "If it is set and not empty, there are no colours.");
const LOG: Entry = ("POLYMETER_LOG", "The events to log, as --log.");
const NOTIFY: Entry =
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "Set by systemd, which is told of readiness and of life.");

const SOCKET: Entry = ("/run/polymeter/agent.sock", "The control socket of this node's agent.");
const COLLECTOR_SOCKET: Entry =
    ("/run/polymeter/collector.sock", "The control socket of a collector on this machine.");
const CLIENT: Entry = ("/etc/polymeter/client.toml", "The address of the collector.");
const AGENT_TOML: Entry = ("/etc/polymeter/agent.toml", "The configuration of the agent.");
const COLLECTOR_TOML: Entry = ("/etc/polymeter/collector.toml", "The configuration of the collector.");
const KEYS: Entry = ("/etc/polymeter/*.key, *.pub", "Secret and public keys.");
const AGENT_KEYS: Entry = ("/etc/polymeter/agents.d", "The public keys of the agents that may connect.");
const STATE: Entry = ("/var/lib/polymeter", "The embedded store, and the spool of an agent.");
const RULES: Entry = ("/etc/polymeter/advice.d", "The site's rules for findings.");
const FILE: Entry = ("polymeter.db", "The store in the working directory, if no collector is configured.");
const SCRIPTS: Entry = ("/usr/libexec/polymeter", "The scripts that schedulers call.");

const REMOTE_ENVIRONMENT: &[Entry] = &[RUN, JOB, COLLECTOR];
const REMOTE_FILES: &[Entry] = &[SOCKET, CLIENT, COLLECTOR_SOCKET];
const READING_FILES: &[Entry] = &[CLIENT, COLLECTOR_SOCKET, FILE];

pub const SUPPLEMENTS: &[Supplement] = &[
    Supplement {
        command: "polymeter",
        exit_status: EXIT_STATUS,
        environment: &[JOB, COLLECTOR, COLOUR],
        files: &[SOCKET, CLIENT, COLLECTOR_SOCKET, AGENT_TOML, COLLECTOR_TOML],
        examples: &[
            (
                "polymeter run -- ./solve",
                "Runs a program and reports its resource usage. It needs no cluster and no root.",
            ),
            ("polymeter report 4242", "Reports a job of the cluster, with findings and advice."),
            ("polymeter doctor", "Examines the installation on this machine."),
        ],
    },
    Supplement {
        command: "polymeter run",
        exit_status: RUN_STATUS,
        environment: &[(
            "POLYMETER_SOCKET, POLYMETER_JOB_ID",
            "Set for the command, so that `mark`, `push`, `set`, `plan` and `watch` within it concern the run.",
        )],
        files: &[RULES],
        examples: &[
            ("polymeter run -- ./solve", "The standard metrics, every 100 ms."),
            ("polymeter run --every 10ms -m 'cpu.*=1ms' -m 'memory.*=1s' -- ./solve", "Other periods."),
            (
                "polymeter run -m perf.instructions -o run.db -- ./solve",
                "A further metric; the samples are kept.",
            ),
        ],
    },
    Supplement {
        command: "polymeter report",
        exit_status: EXIT_STATUS,
        environment: &[JOB, COLLECTOR, COLOUR],
        files: &[CLIENT, COLLECTOR_SOCKET, FILE, RULES],
        examples: &[
            ("polymeter report", "The job that runs this command, else your job that started last."),
            ("polymeter report 4009_1 --show nodes,steps", "A task of an array, with its nodes and steps."),
            ("polymeter report --store sqlite:run.db --show all", "A job of `polymeter run -o run.db`."),
            ("polymeter report 4242 --html job.html", "A page with charts, which needs no network."),
        ],
    },
    Supplement {
        command: "polymeter bundle",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            (
                "polymeter bundle 4242 --out my-run",
                "Writes samples, plan, losses, machine facts and hashes into a directory.",
            ),
            ("polymeter bundle verify my-run", "Lists what was changed since."),
        ],
    },
    Supplement {
        command: "polymeter bundle verify",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[],
        examples: &[("polymeter bundle verify my-run", "Lists files that were changed, removed or added.")],
    },
    Supplement {
        command: "polymeter bundle seal",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[],
        examples: &[(
            "polymeter bundle seal results",
            "Adds machine facts and hashes to a directory of results.",
        )],
    },
    Supplement {
        command: "polymeter export",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            (
                "polymeter export 4242 --metric 'cpu.*' -o job.parquet",
                "Some metrics, for pandas, polars or DuckDB.",
            ),
            (
                "polymeter export 4242 --derived --metric perf.ipc -o ipc.csv",
                "Instructions per cycle, computed from their counters.",
            ),
            ("polymeter export 4242 --format csv -o -", "All metrics as CSV on the standard output."),
        ],
    },
    Supplement {
        command: "polymeter flame",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            ("polymeter flame 4242", "The functions below their callers, with their shares of the time."),
            ("polymeter flame --store sqlite:run.db", "Those of the only job of a file."),
            ("polymeter flame 4242 --phase solve -o flame.html", "A flame graph of a phase, as a page."),
            ("polymeter flame 4242 --from +60s --to +120s", "The second minute of the job."),
            (
                "polymeter flame 4250 --against 4242 --format html -o change.html",
                "What changed between two jobs.",
            ),
            ("polymeter flame 4242 -o job.folded", "For flamegraph.pl and speedscope."),
        ],
    },
    Supplement {
        command: "polymeter compare",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            ("polymeter compare 4242 4250", "Two jobs."),
            ("polymeter compare 4242,4243 4250,4251 --group", "Two groups of jobs."),
        ],
    },
    Supplement {
        command: "polymeter trend",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            ("polymeter trend train", "Your runs of this name, and where they changed."),
            (
                "polymeter trend train --metric elapsed_s,energy_j --since 90d",
                "Two quantities, three months.",
            ),
        ],
    },
    Supplement {
        command: "polymeter overhead",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: READING_FILES,
        examples: &[
            (
                "polymeter overhead --metric user.iterations 'cpu.*=1ms'",
                "In the job: five minutes, its iterations a second.",
            ),
            (
                "polymeter overhead --job 4242 --phase step stacks.cpu=10ms --for 20min",
                "From a login node, by the duration of a phase.",
            ),
        ],
    },
    Supplement {
        command: "polymeter metrics",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[SOCKET],
        examples: &[
            ("polymeter metrics 'perf.*'", "The metrics of the catalogue that match."),
            (
                "polymeter metrics --job 4242",
                "What this job has, what each read costs, and why others are missing.",
            ),
        ],
    },
    Supplement {
        command: "polymeter status",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[SOCKET],
        examples: &[("polymeter status", "Samples, costs, and the connection to the collector.")],
    },
    Supplement {
        command: "polymeter jobs",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[SOCKET, CLIENT, COLLECTOR_SOCKET, FILE],
        examples: &[
            ("polymeter jobs", "The jobs on this node; where no agent runs, your running jobs on all nodes."),
            ("polymeter jobs --running", "Your running jobs on all nodes."),
            ("polymeter jobs --ended --since 7d", "Your jobs that ended in the last seven days."),
        ],
    },
    Supplement {
        command: "polymeter usage",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET, FILE],
        examples: &[
            ("polymeter usage", "Your jobs of the last seven days; for administrators the users, by waste."),
            ("polymeter usage --by account --from 2026-10-01 --to 2026-11-01", "The accounts in October."),
            ("polymeter usage --by array --user zoe --from 30d", "The arrays of a user."),
        ],
    },
    Supplement {
        command: "polymeter advise",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET, FILE],
        examples: &[
            ("polymeter advise job.sh", "A request for a job script, from your earlier jobs of its name."),
            ("polymeter advise job.sh --like 4242", "The same, from jobs like this one."),
            ("polymeter advise --name train", "Without a script, from the request of the last such job."),
        ],
    },
    Supplement {
        command: "polymeter notices",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET, FILE],
        examples: &[
            ("polymeter notices", "The notices about your jobs, and what became of them."),
            ("polymeter notices --off idle-gpu", "No more notices of this rule."),
            ("polymeter notices --off", "No more notices at all."),
            ("polymeter notices --choices", "What you have turned off."),
        ],
    },
    Supplement {
        command: "polymeter plan",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter plan --job 4242", "The periods in force, and the reason for each.")],
    },
    Supplement {
        command: "polymeter set",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[
            (
                "polymeter set 'cpu.*=10ms' perf.page_faults=1ms --for 10min",
                "Within a job: its own sampling.",
            ),
            ("polymeter set --job 4242 --steps cpu.usage=100ms", "Each step of a job, from a login node."),
        ],
    },
    Supplement {
        command: "polymeter reset",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter reset --job 4242", "Ends your changes.")],
    },
    Supplement {
        command: "polymeter pmu",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter pmu release --for 10min", "Within a job: its hardware events are closed.")],
    },
    Supplement {
        command: "polymeter pmu release",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[
            ("polymeter pmu release --for 10min", "Within a job, before another profiler counts."),
            (
                "polymeter pmu release --node --for 1h",
                "As root: the events of this node and of all its jobs.",
            ),
        ],
    },
    Supplement {
        command: "polymeter pmu resume",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter pmu resume --job 4242", "Opens the events that you released.")],
    },
    Supplement {
        command: "polymeter keep",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[
            ("polymeter keep", "In the job: the last 30 s, on all of its nodes."),
            (
                "polymeter keep --job 4242 --last 1min --reason 'the solver diverged'",
                "From a login node, with a reason for the report.",
            ),
        ],
    },
    Supplement {
        command: "polymeter trigger",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[(
            "polymeter trigger add oom --when oom --keep 30s",
            "Within a job: keeps the 30 s before an OOM kill.",
        )],
    },
    Supplement {
        command: "polymeter trigger add",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[
            ("polymeter trigger add oom --when oom --keep 30s", "Keeps the 30 s before an OOM kill."),
            (
                "polymeter trigger add stall --when 'rate(cpu.usage) < 1000 for 30s' --stacks 10ms",
                "Takes call stacks of a job that has stopped computing.",
            ),
        ],
    },
    Supplement {
        command: "polymeter trigger list",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter trigger list --job 4242", "Lists triggers, and what has fired.")],
    },
    Supplement {
        command: "polymeter trigger remove",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[("polymeter trigger remove oom --job 4242", "Removes the trigger.")],
    },
    Supplement {
        command: "polymeter mark",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[
            ("polymeter mark solver --begin", "Begins a phase."),
            ("polymeter mark 'checkpoint 3'", "Records an instant."),
        ],
    },
    Supplement {
        command: "polymeter push",
        exit_status: EXIT_STATUS,
        environment: REMOTE_ENVIRONMENT,
        files: REMOTE_FILES,
        examples: &[(
            "polymeter push loss=0.25 --unit nats --label rank=3",
            "Stores user.loss beside the samples of the job.",
        )],
    },
    Supplement {
        command: "polymeter watch",
        exit_status: EXIT_STATUS,
        environment: &[RUN, JOB, COLLECTOR, COLOUR, ("TERM", "If it is unset or `dumb`, lines are printed.")],
        files: REMOTE_FILES,
        examples: &[
            ("polymeter watch", "Within a job: a live view of its samples."),
            ("polymeter watch --job 4242 'cpu.*'", "From a login node: all nodes of the job."),
            ("polymeter watch --plain --count 10 memory.current", "Lines for a script."),
            ("polymeter watch --functions --job 4242", "The functions with the most time in the last 30 s."),
        ],
    },
    Supplement {
        command: "polymeter token",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET],
        examples: &[("polymeter token create --name notebook", "A token of the HTTP API to read your jobs.")],
    },
    Supplement {
        command: "polymeter token create",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET],
        examples: &[(
            "polymeter token create --scope control --days 7",
            "A token for a week that may change the sampling.",
        )],
    },
    Supplement {
        command: "polymeter token list",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET],
        examples: &[("polymeter token list --all-users", "As root: the tokens of all users.")],
    },
    Supplement {
        command: "polymeter token revoke",
        exit_status: EXIT_STATUS,
        environment: &[COLLECTOR],
        files: &[CLIENT, COLLECTOR_SOCKET],
        examples: &[("polymeter token revoke 4f1c9a0be27d8835", "Revokes one token.")],
    },
    Supplement {
        command: "polymeter setup",
        exit_status: SETUP_STATUS,
        environment: &[],
        files: &[AGENT_TOML, COLLECTOR_TOML, CLIENT, KEYS, AGENT_KEYS, STATE],
        examples: &[("polymeter setup node --dry-run", "Shows what would be done.")],
    },
    Supplement {
        command: "polymeter setup collector",
        exit_status: SETUP_STATUS,
        environment: &[],
        files: &[COLLECTOR_TOML, KEYS, AGENT_KEYS, STATE],
        examples: &[
            (
                "polymeter setup collector --keys --munge --scheduler-user slurm",
                "For nodes and login nodes of a Slurm cluster.",
            ),
            (
                "polymeter setup collector --store postgres --enable",
                "Role and database on this machine's PostgreSQL server.",
            ),
        ],
    },
    Supplement {
        command: "polymeter setup node",
        exit_status: SETUP_STATUS,
        environment: &[],
        files: &[AGENT_TOML, KEYS, STATE],
        examples: &[(
            "polymeter setup node --keys --collector tcp://head:7717 --enable",
            "Configuration, keys and the service.",
        )],
    },
    Supplement {
        command: "polymeter setup login",
        exit_status: SETUP_STATUS,
        environment: &[],
        files: &[CLIENT],
        examples: &[("polymeter setup login --collector tcp://head:7718", "The address for users.")],
    },
    Supplement {
        command: "polymeter doctor",
        exit_status: DOCTOR_STATUS,
        environment: &[],
        files: &[AGENT_TOML, COLLECTOR_TOML, CLIENT, KEYS, AGENT_KEYS, STATE, SCRIPTS],
        examples: &[
            ("polymeter doctor", "Problems and warnings, each with a remedy."),
            ("polymeter doctor --role login --json", "For a program."),
        ],
    },
    Supplement {
        command: "polymeter check",
        exit_status: CHECK_STATUS,
        environment: &[RUN, COLLECTOR],
        files: &[SOCKET, CLIENT, COLLECTOR_SOCKET, AGENT_TOML, COLLECTOR_TOML],
        examples: &[
            ("polymeter check", "The agent of this node, for NRPE or an agent of Icinga."),
            (
                "polymeter check --node node17 --warning late=10 --critical loss=100",
                "The agent of a node, with thresholds, from a server of Icinga.",
            ),
            ("polymeter check --collector head:9717", "A collector with `metrics_listen`."),
        ],
    },
    Supplement {
        command: "polymeter completions",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[],
        examples: &[(
            "polymeter completions bash",
            "The script that packages install. It completes ids of jobs, metrics and periods, too.",
        )],
    },
    Supplement {
        command: "polymeter man",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[],
        examples: &[("polymeter man --out man", "Writes all pages.")],
    },
    Supplement {
        command: "polymeter store",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE, COLLECTOR_TOML],
        examples: &[(
            "polymeter store --store sqlite:/var/lib/polymeter/store.db",
            "Size, growth, and what retention removes next.",
        )],
    },
    Supplement {
        command: "polymeter store prune",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE, COLLECTOR_TOML],
        examples: &[(
            "polymeter store prune --store 'postgres:///polymeter?host=/run/postgresql' --dry-run",
            "Shows what would be removed.",
        )],
    },
    Supplement {
        command: "polymeter store confirm-clock",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE, COLLECTOR_TOML],
        examples: &[(
            "polymeter store confirm-clock",
            "Lets the collector remove old rows again, after the clock was set or no collector ran for long.",
        )],
    },
    Supplement {
        command: "polymeter store import",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE, COLLECTOR_TOML],
        examples: &[(
            "polymeter store import job-4242.parquet --store sqlite:new.db",
            "Stores the samples of an exported job.",
        )],
    },
    Supplement {
        command: "polymeter store copy",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE],
        examples: &[(
            "polymeter store copy sqlite:polymeter.db postgres://polymeter@db/polymeter",
            "Copies a whole store into an empty database, and compares the counts.",
        )],
    },
    Supplement {
        command: "polymeter store keep",
        exit_status: EXIT_STATUS,
        environment: &[],
        files: &[FILE, COLLECTOR_TOML],
        examples: &[
            ("polymeter store keep 4242 --until 2027-12-31", "Keeps a job until a day."),
            ("polymeter store keep 4242 --release", "Lets retention apply again."),
        ],
    },
    Supplement {
        command: "polymeter device",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[],
        examples: &[("polymeter device try snmp://pdu3.example", "Shows what a device offers.")],
    },
    Supplement {
        command: "polymeter device try",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[("/etc/polymeter/pdu3.secret", "Credentials: community = \"...\", or user and passwords.")],
        examples: &[(
            "polymeter device try snmp://pdu3.example --credentials /etc/polymeter/pdu3.secret",
            "Proposes a configuration for a device with SNMP.",
        )],
    },
    Supplement {
        command: "polymeter calibrate",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[SOCKET, ("/var/lib/polymeter/roofs.json", "The measured roofs, which the agent announces.")],
        examples: &[("polymeter calibrate --dry-run", "Measures this node, and shows its roofs.")],
    },
    Supplement {
        command: "polymeter keygen",
        exit_status: LOCAL_STATUS,
        environment: &[],
        files: &[KEYS],
        examples: &[("polymeter keygen --out keys --name n17", "Writes keys/n17.key and keys/n17.pub.")],
    },
    Supplement {
        command: "polymeter job",
        exit_status: HOOK_STATUS,
        environment: &[],
        files: &[SOCKET, SCRIPTS],
        examples: &[(
            "polymeter job start --job 4242 --uid 1000",
            "Announces a job, as the prolog of any scheduler can.",
        )],
    },
    Supplement {
        command: "polymeter job start",
        exit_status: HOOK_STATUS,
        environment: &[(
            "SLURM_*, OAR_*",
            "Facts about the job. The description of each option names its variable.",
        )],
        files: &[SOCKET, AGENT_TOML, SCRIPTS],
        examples: &[
            (
                "polymeter job start --job 4242 --user zoe --name train --no-agent",
                "Announces a job; no agent is started.",
            ),
            (
                "polymeter job start --exit-when-idle",
                "In a prolog: starts an agent that ends behind the last job.",
            ),
        ],
    },
    Supplement {
        command: "polymeter job end",
        exit_status: HOOK_STATUS,
        environment: &[("SLURM_JOB_ID, OAR_JOB_ID, SLURM_JOB_EXIT_CODE2", "The job, and how it ended.")],
        files: &[SOCKET, SCRIPTS],
        examples: &[(
            "polymeter job end --job 4242 --state COMPLETED --exit-code 0",
            "Announces the end of a job.",
        )],
    },
    Supplement {
        command: "polymeter job state",
        exit_status: HOOK_STATUS,
        environment: &[
            ("SLURM_*, OAR_*", "Facts about the job. The description of each option names its variable."),
            COLLECTOR,
        ],
        files: &[CLIENT, COLLECTOR_SOCKET, SCRIPTS],
        examples: &[(
            "polymeter job state --job 4242 --state TIMEOUT",
            "On the scheduler's controller: how a job ended.",
        )],
    },
    Supplement {
        command: "polymeter-agent",
        exit_status: AGENT_STATUS,
        environment: &[LOG, NOTIFY],
        files: &[AGENT_TOML, KEYS, SOCKET, STATE],
        examples: &[
            ("polymeter-agent --check --user polymeter", "Reports all faults of the configuration."),
            ("polymeter-agent --collector tcp://head:7717", "Samples the jobs of this node."),
        ],
    },
    Supplement {
        command: "polymeter-collector",
        exit_status: COLLECTOR_STATUS,
        environment: &[LOG, NOTIFY],
        files: &[COLLECTOR_TOML, KEYS, AGENT_KEYS, COLLECTOR_SOCKET, STATE],
        examples: &[
            (
                "polymeter-collector --check --connect --user polymeter",
                "Also tests whether the store can be used.",
            ),
            (
                "polymeter-collector --listen tcp://127.0.0.1:7717 --store sqlite:store.db",
                "Stores the samples of this machine.",
            ),
        ],
    },
];
