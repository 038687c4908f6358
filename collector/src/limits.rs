//! All limits of the collector, with their reasons. Those of the protocol are in [`polymeter_proto::limits`].

use std::time::Duration;

/// Messages from one agent that ZeroMQ queues. Further messages wait in the agent's outbox. Each may have 4
/// MiB, and stays in memory while the writers' queues are full.
pub const SOCKET_MESSAGES_IN: i32 = 32;

/// Messages to one agent that ZeroMQ queues.
pub const SOCKET_MESSAGES_OUT: i32 = 256;

/// Connections that wait to be accepted: after a power failure all nodes connect at once, and with a short
/// backlog thousands of them would retry for minutes. The kernel limits it to net.core.somaxconn.
pub const BACKLOG: i32 = 4096;

/// Bytes that wait for one writer. 128 MiB are seconds of a large cluster; more data should rather wait in
/// the agents' outboxes.
pub const QUEUE_BYTES: usize = 128 * 1024 * 1024;

/// Messages that wait for one writer.
pub const QUEUE_MESSAGES: usize = 16 * 1024;

/// Bytes of one peer that wait for one writer: a whole dictionary, and the maximum that an agent has in
/// flight. Further messages are dropped.
pub const PEER_QUEUE_BYTES: usize = 64 * 1024 * 1024;

pub const PEER_QUEUE_MESSAGES: usize = 4 * 1024;

/// Bytes that one peer may send per turn while others wait.
pub const TURN_BYTES: usize = 64 * 1024;

/// Bytes that a peer may send without anything that can be stored: twice a whole dictionary. A peer that
/// exceeds it is muted except for [`USELESS_BYTES_PER_S`], until one of its messages can be stored.
pub const USELESS_BYTES: usize = 128 * 1024 * 1024;

/// Rate at which a peer regains bytes of [`USELESS_BYTES`].
pub const USELESS_BYTES_PER_S: usize = 1024 * 1024;

/// Cost of a useless message in addition to its bytes.
pub const USELESS_MESSAGE_BYTES: usize = 512;

/// Silence after which a session is removed if no frame of it was ever accepted.
pub const UNPROVEN_SILENCE: Duration = Duration::from_secs(10);

/// Memory for the dictionaries of all such sessions together. With a new store all agents send their
/// dictionaries at once.
pub const UNPROVEN_DICTIONARY_BYTES: usize = 256 * 1024 * 1024;

/// How often a writer checks such sessions, if it has any.
pub const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes that must have been freed before the allocator is requested to return memory.
pub const TRIM_BYTES: usize = 4 * 1024 * 1024;

/// Messages to agents that wait to be sent. The receiver never waits for a writer; therefore a writer may
/// wait for the receiver here.
pub const OUTGOING_MESSAGES: usize = 16 * 1024;

/// Messages that the receiver reads from its socket before it sends answers again.
pub const RECEIVE_BURST: usize = 256;

/// How long the receiver collects messages after the first one. Thousands of agents send small frames, and
/// waking two threads for each costs more than processing it. No agent waits for an acknowledgement, which
/// follows a commit.
pub const COLLECT_DURATION: Duration = Duration::from_millis(10);

/// Outcomes of jobs that wait to be stored: those of a whole job array that is cancelled.
pub const OUTCOMES: usize = 4096;

/// Longest delay until the outcome of a job is stored if nothing else arrives.
pub const OUTCOMES_INTERVAL: Duration = Duration::from_millis(500);

pub const OUTCOME_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames of one transaction. Frames without samples do not count as rows.
pub const COMMIT_FRAMES: usize = 8 * 1024;

/// Shortest time for which frames wait for others while a client watches live values.
pub const LIVE_COMMIT_INTERVAL: Duration = Duration::from_millis(100);

/// Frames wait at least this multiple of the last transaction's duration while a client watches: transactions
/// then take a twentieth of the time at most.
pub const LIVE_COMMIT_DURATIONS: u32 = 20;

/// Sessions that one writer keeps. A removed session is looked up in the store when it sends again.
pub const SESSIONS: usize = 16 * 1024;

/// Sessions of one peer: an agent has one, and its predecessor's while the outbox drains.
pub const SESSIONS_PER_PEER: usize = 8;

/// Memory for the dictionary of one session, and for those of one peer: about 700 000 series. An agent that
/// scrapes a thousand exporters has 500 000.
pub const SESSION_DICTIONARY_BYTES: usize = 256 * 1024 * 1024;

/// The part of it that is left for lines of the ledger, so that the losses of a session whose dictionary is
/// full are stored.
pub const SESSION_LINES_BYTES: usize = 8 * 1024 * 1024;

/// Time until an agent whose whole dictionary was too large is asked for it again: it may have fewer series
/// by then.
pub const DICTIONARY_RETRY: Duration = Duration::from_secs(600);

/// Memory for the dictionaries of all sessions of one writer. The sessions with the longest silence are
/// removed first.
pub const DICTIONARY_BYTES: usize = 1024 * 1024 * 1024;

/// Series that users supply for a job on a node, over all sessions. An agent admits 256. As many are read
/// from the store.
pub const USER_SERIES_OF_JOB: usize = 1024;

/// Jobs that the labels of devices name and whose lookup is remembered, and series of devices that belong to
/// jobs: those of a large cluster.
pub const DEVICE_JOBS: usize = 100_000;

/// Time until a job that a label of a device names is looked up again: its end must become known.
pub const DEVICE_JOB_REREAD: Duration = Duration::from_secs(30);

/// The same where there is none: an exporter may know a job before its node's agent.
pub const DEVICE_JOB_RETRY: Duration = Duration::from_secs(5);

/// Values of a device belong to a job from so long before its start on and until so long after its end: an
/// exporter sees both late or early.
pub const DEVICE_JOB_MARGIN_US: i64 = 60_000_000;

/// Series of regions of instrumented programs of a job on a node, over all sessions. An agent admits 20,480.
pub const REGION_SERIES_OF_JOB: usize = 40 * 1024;

/// Users' series that are remembered, in some 16 bytes each. Beyond it the jobs that began first are
/// forgotten: their series are read from the store again.
pub const USER_SERIES: usize = 1024 * 1024;

/// Delay after which an unanswered request to an agent (for frames or the dictionary) is repeated.
pub const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Dictionaries that an agent may send for one frame. If the frame still has unknown ids, another dictionary
/// does not help.
pub const DICTIONARIES_PER_FRAME: u32 = 3;

/// Default silence after which a session counts as ended. Agents send at least every 30 s, and may wait up to
/// a minute before they retry.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(300);

/// Silence after which the HTTP API no longer calls an agent connected, and its session ends if it has a
/// successor, in microseconds: two and a half times the longest interval between an agent's frames.
pub const AGENT_SILENCE_US: i64 = 75_000_000;

/// Longest interval between two checks for silent sessions.
pub const SILENCE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Default greatest age of a sample: an outbox that survived a long maintenance.
pub const SAMPLE_AGE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Default greatest lead of a sample's time: a clock with a wrong time zone.
pub const SAMPLE_SKEW_MAX: Duration = Duration::from_secs(86_400);

/// Maximum of both settings. On plain PostgreSQL every day within it may become a partition.
pub const SAMPLE_DISTANCE_MAX: Duration = Duration::from_secs(3660 * 86_400);

/// Answers to a peer whose messages are refused are this far apart.
pub const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of log messages about one peer that is refused, or one node whose clock is skewed.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Refused peers that are kept. While all of them are recent, further peers get no answer.
pub const REFUSED_PEERS: usize = 1024;

/// Log messages about refusals within [`LOG_INTERVAL`], since a peer that reconnects counts as a new peer;
/// likewise about clocks, since the collector's own clock may be wrong.
pub const LOG_MESSAGES: u32 = 20;

/// First and longest delay between two attempts to reach the store.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Different errors that are logged while the store is unreachable.
pub const OUTAGE_ERRORS: usize = 8;

/// How long the file of an SQLite store may be missing before a new one is created: a replacement may be in
/// progress.
pub const STORE_MISSING: Duration = Duration::from_secs(5);

/// Time within which a stopping collector commits the received data. Agents keep data that are not
/// acknowledged.
pub const SHUTDOWN_COMMIT: Duration = Duration::from_secs(10);

/// Silence after which a stopping collector considers its socket drained, and the longest time it waits for
/// that.
pub const SHUTDOWN_DRAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Time for the last acknowledgements to leave a stopping collector.
pub const LINGER_MS: i32 = 1_000;

/// Nodes that control keeps, and their jobs in total: about 100 MiB. The latest changes are kept.
pub const NODES: usize = 16 * 1024;

/// Jobs for [`NODES`].
pub const JOBS: usize = 256 * 1024;

/// Least limit of file descriptors: the sockets, the store and its connections need about 40. With fewer,
/// libzmq ends the process, and SQLite names another cause.
pub const DESCRIPTORS_MIN: u64 = 64;

/// Connections to each endpoint for users. Root has places of its own at the Unix socket.
pub const CONTROL_CONNECTIONS: usize = 256;

/// Connections of one user to the Unix socket, and requests of one user in progress, so that no user excludes
/// others.
pub const CONTROL_PER_USER: usize = 16;

/// Bytes of a request with its newline, as on an agent's socket.
pub const REQUEST_BYTES: u64 = 64 * 1024;

/// Bytes of a request as a MUNGE credential: base64 adds a third, the nonce and MUNGE's header a little.
pub const CREDENTIAL_BYTES: u64 = 96 * 1024;

/// How long a connection may be silent, and within which the client must read its answer.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after which a request takes effect on all nodes: longer than the transmission of a message.
pub const EFFECT_DELAY_US: i64 = 250_000;

/// Time for agents' answers after a request took effect.
pub const ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// How often an agent's clock is measured: clocks without a time service drift by some milliseconds in that
/// time.
pub const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// How often agents whose clocks must be measured are looked for. With [`CLOCK_REQUESTS`] agents at each
/// look, 60 a second, [`CLOCK_INTERVAL`] is kept with 3,600 agents, and is longer with more.
pub const CLOCK_TICK: Duration = Duration::from_secs(2);

/// Offset of a node's clock from which on the times of its jobs are corrected, and stated to be. Less does
/// not show in a report, and is the accuracy of clocks without a time service. A change by half of it counts.
pub const CLOCK_OFFSET_US: i64 = 1_000_000;

/// Agents asked at each [`CLOCK_TICK`].
pub const CLOCK_REQUESTS: usize = 120;

/// Length of a lease that a collector asks agents of devices for, on behalf of a job. It ends without the
/// collector.
pub const DEMAND_TIME: Duration = Duration::from_secs(90);

/// Interval at which such a lease is renewed.
pub const DEMAND_INTERVAL: Duration = Duration::from_secs(30);

/// The same for what an agent has refused or not answered.
pub const DEMAND_RETRY: Duration = Duration::from_secs(10);

/// Nodes of one job in a request to an agent of devices: the entries of a list of the control language.
pub const DEMAND_NODES: usize = 1024;

/// Answers of agents that wait for control, which takes them immediately. Further ones count as missing.
pub const CONTROL_ANSWERS: usize = 1024;

/// Requests from the HTTP API that wait for control, which takes them immediately. Further ones are refused
/// as busy.
pub const CONTROL_API_REQUESTS: usize = 256;

/// Bytes of all nodes' answers to one request. Beyond that, answers are shortened.
pub const JOB_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Delay after which a request takes effect if other collectors forward it: they find it after
/// [`REQUESTS_POLL`].
pub const SHARED_EFFECT_DELAY_US: i64 = 1_000_000;

/// How often collectors look for requests of others: a query of a small table.
pub const REQUESTS_POLL: Duration = Duration::from_millis(250);

/// How often answers are exchanged through the store.
pub const ANSWERS_POLL: Duration = Duration::from_millis(100);

/// How often a collector records that it runs.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Time without another running collector after which this one counts as the only one: that after which one
/// counts as away, since the answer to a beat may come late.
pub const OTHERS_AWAY: Duration = Duration::from_secs(10);

/// Interval at which collectors exchange the values of jobs' nodes. They compare 5 s after each interval of
/// values.
pub const STRAGGLER_EXCHANGE: Duration = Duration::from_secs(1);

/// How long a stopping collector waits for the record of its end.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that storing a request may take before it is sent: less than [`EFFECT_DELAY_US`].
pub const STORE_PATIENCE: Duration = Duration::from_millis(150);

/// How long a request is forwarded in any case, in microseconds: agents change their collector within that
/// time.
pub const FORWARD_US: i64 = 30_000_000;

/// How long stored requests about a job are expected, in microseconds: the longest lease is usually not
/// longer.
pub const PENDING_US: i64 = 86_400 * 1_000_000;

/// How long a trigger that users add is sent to agents that start again, in microseconds: a week. Few jobs
/// last longer, and requests for triggers are not removed with their job.
pub const TRIGGER_US: i64 = 7 * 86_400 * 1_000_000;

/// Requests that wait for a store that does not answer.
pub const UNSTORED_REQUESTS: usize = 256;

/// Jobs with stored requests that are kept in memory.
pub const PENDING_REQUESTS: usize = 4096;

pub const UNMUNGE_PROCESSES: usize = 8;

pub const UNMUNGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Authorised keys: one per node of the largest machines, several times over.
pub const AUTHORISED_AGENTS: usize = 64 * 1024;

/// Faults of key files that are logged.
pub const KEY_FAULTS: usize = 20;

/// How often the directory of authorised keys is checked while no agent connects, so that a removed key of a
/// connected agent takes effect.
pub const KEYS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Delay after which a key file that was edited in place takes effect. Other changes take effect immediately.
pub const KEYS_REREAD_INTERVAL: Duration = Duration::from_secs(30);

/// Failed handshakes, and authentication requests, that are handled before other work of the authentication
/// thread.
pub const AUTH_BURST: usize = 256;

/// How long authentication waits until its socket is closed: longer than the last acknowledgements may take.
pub const AUTH_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of a request for the collector's own metrics. A scraper's has a few hundred.
pub const HTTP_REQUEST_BYTES: usize = 8 * 1024;

/// Connections of scrapers of the collector's own metrics. Where there are more, the oldest silent one ends.
pub const HTTP_CONNECTIONS: usize = 64;

/// Limits one request and its answer, so that a silent client holds no connection.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the store counts as not answering. Statements that register thousands of jobs at once
/// take seconds.
pub const STORE_ANSWERS: Duration = Duration::from_secs(30);

/// Transactions that wait for one sink: a minute at the default commit interval. Further ones are dropped.
pub const SINK_BATCHES: usize = 64;

/// Transactions that wait for a sink that sends, which reads from the store first after a restart.
pub const OUTBOUND_BATCHES: usize = 2048;

/// Series with a value for `/federate`. Each needs about 100 bytes, besides its record, which others have, too.
pub const FEDERATION_SERIES: usize = 1_000_000;

/// Rows that wait for one sink, about 32 MB. A single transaction may exceed it.
pub const SINK_ROWS: u64 = 2_000_000;

/// Longest time that a stopping collector waits for all sinks together. Rows that are still queued are
/// dropped.
pub const SINK_STOP_TIMEOUT: Duration = Duration::from_secs(2);

pub const SINK_LOG_INTERVAL: Duration = Duration::from_secs(60);

pub const SINK_LOG_LINES: u32 = 4;

/// Sessions of reading at once. Each has a thread and a connection to the store.
pub const READ_SESSIONS: usize = 16;

/// Sessions of reading of one user at once, so that no user excludes others.
pub const READ_SESSIONS_PER_USER: usize = 2;

/// Time within which a client must send its next query: longer than a report computes between two queries.
pub const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without progress after which a client that does not read its rows is disconnected.
pub const READ_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for one query, after which its statement is cancelled. It holds a snapshot of the database, which
/// keeps old rows.
pub const READ_QUERY_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeouts of a session of reading, which tests shorten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTimeouts {
    /// Usually [`READ_IDLE_TIMEOUT`].
    pub idle: Duration,
    /// Usually [`READ_STALL_TIMEOUT`].
    pub stall: Duration,
    /// Usually [`READ_QUERY_TIMEOUT`].
    pub query: Duration,
}

impl Default for ReadTimeouts {
    fn default() -> Self {
        Self { idle: READ_IDLE_TIMEOUT, stall: READ_STALL_TIMEOUT, query: READ_QUERY_TIMEOUT }
    }
}

/// How often sessions of reading are checked for queries that take too long and clients that are gone.
pub const READ_CHECK_INTERVAL: Duration = Duration::from_millis(500);

pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// How often the ends of jobs are searched for those whose command is due. Each search is a count of a small
/// table.
pub const JOB_END_POLL_INTERVAL: Duration = Duration::from_secs(1);

pub const JOB_END_EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of the standard error of a command that are logged.
pub const JOB_END_ERROR_BYTES: usize = 1024;

/// Bytes of the standard error of a command that are read. Beyond that it is closed.
pub const JOB_END_ERROR_BYTES_READ: usize = 1024 * 1024;

/// Time for gathering the report of one job. Its statement is cancelled then.
pub const JOB_END_REPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// How long an end stays claimed beyond the report and the command: the start and the reaping of a process on
/// a busy machine.
pub const JOB_END_LEASE_MARGIN: Duration = Duration::from_secs(60);

/// Delay after which a report is gathered again if the store failed.
pub const JOB_END_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Age at which an end is dropped: its command is no longer of use.
pub const JOB_END_AGE: Duration = Duration::from_secs(86_400);

/// Bytes of the summary of Jobstats that are passed in a variable: slurmdbd cuts longer comments.
pub const JOB_END_JOBSTATS_BYTES: usize = 65_535;

/// How long a stopping collector waits for commands, which are killed.
pub const JOB_END_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of log messages about the same problem with a command, and their number for all problems.
pub const JOB_END_LOG: (Duration, u32) = (Duration::from_secs(60), 20);

/// How long a writer has messages in its queue before it counts as behind: longer than it takes to store what
/// all agents flush at once.
pub(crate) const BACKLOG_NS: u64 = 300_000_000;

/// Delay after which the managers of accounts are written again if the store failed.
pub(crate) const STORE_MANAGERS_AGAIN: Duration = Duration::from_secs(30);

/// How often jobs to summarise are looked for.
pub const SUMMARY_INTERVAL: Duration = Duration::from_secs(5);

/// Delay between the end of a job and its summary: the last samples of all nodes and the final state come
/// later than the end.
pub const SUMMARY_DELAY: Duration = Duration::from_secs(30);

pub const SUMMARY_JOBS: u32 = 20;

/// How often the thread looks whether the collector stops.
pub const SUMMARY_STOP_INTERVAL: Duration = Duration::from_millis(100);

pub const SUMMARY_PAGE: u32 = 100;
