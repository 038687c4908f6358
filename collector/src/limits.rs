//! Every bound of the collector, by name, with its reason. Those of the protocol are in [`polymeter_proto::limits`].

use std::time::Duration;

/// Messages that ZeroMQ queues per agent on its way here. What does not fit waits in the agent's outbox. Each may have 4 MiB,
/// and they lie here while the inboxes are full.
pub const SOCKET_MESSAGES_IN: i32 = 32;

/// Messages that ZeroMQ queues per agent on its way there.
pub const SOCKET_MESSAGES_OUT: i32 = 256;

/// Connections that wait to be accepted: after a power cut all nodes come at once, and those that find no room try again
/// and again, which takes minutes with thousands of them. The kernel allows no more than its net.core.somaxconn.
pub const BACKLOG: i32 = 4096;

/// Bytes that wait for one writer. 64 MiB are seconds of a large cluster; beyond it the agents' outboxes are the better
/// place.
pub const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// Messages that wait for one writer, however small they are.
pub const QUEUE_MESSAGES: usize = 16 * 1024;

/// Bytes of one peer that wait for one writer: a whole dictionary on the wire, and what an agent has under way at most. What is
/// beyond it is dropped.
pub const PEER_QUEUE_BYTES: usize = 32 * 1024 * 1024;

/// Messages of one peer that wait for one writer, however small they are.
pub const PEER_QUEUE_MESSAGES: usize = 4 * 1024;

/// Bytes that one peer may take in its turn while others wait.
pub const TURN_BYTES: usize = 64 * 1024;

/// Bytes that a peer may send without anything in them that can be stored: twice a whole dictionary. Beyond it, it is not
/// heard but for [`USELESS_BYTES_PER_S`], until something of it can be stored.
pub const USELESS_BYTES: usize = 128 * 1024 * 1024;

/// See [`USELESS_BYTES`].
pub const USELESS_BYTES_PER_S: usize = 1024 * 1024;

/// What a message that is of no use counts for beside its bytes.
pub const USELESS_MESSAGE_BYTES: usize = 512;

/// How long a session of which nothing was ever accepted may be silent before it is forgotten.
pub const STRANGER_SILENCE: Duration = Duration::from_secs(10);

/// Memory that the dictionaries of such sessions may take together, whoever they belong to. With a new store all agents send
/// theirs at once.
pub const STRANGERS_DICTIONARY_BYTES: usize = 256 * 1024 * 1024;

/// How often a writer that has such sessions looks after them.
pub const TIDY_EVERY: Duration = Duration::from_secs(2);

/// Bytes that must have been freed until the allocator is asked to give memory back.
pub const TRIM_BYTES: usize = 4 * 1024 * 1024;

/// Answers that wait to be sent. The receiver never waits for a writer, so that a writer may wait for it here.
pub const OUTGOING_MESSAGES: usize = 16 * 1024;

/// Messages that the receiver takes from its socket before it looks after the answers again.
pub const RECEIVE_BURST: usize = 256;

/// How long the receiver lets messages come together after one has woken it. Thousands of agents each send a small frame
/// now and then, and to wake two threads for each takes longer than all that is done with it; nobody waits for an
/// acknowledgement, which comes after a commit in any case.
pub const COLLECT_DURATION: Duration = Duration::from_millis(10);

/// Ends of jobs that wait to be stored: those of a whole array that is cancelled.
pub const OUTCOMES: usize = 4096;

/// How soon the end of a job is stored where nothing else comes.
pub const OUTCOMES_EVERY: Duration = Duration::from_millis(500);

/// How long the end of a job may take to be stored.
pub const OUTCOME_WITHIN: Duration = Duration::from_secs(5);

/// Frames of one transaction, for frames without samples do not count as rows.
pub const COMMIT_FRAMES: usize = 8 * 1024;

/// Sessions that one writer remembers. A session that was forgotten is looked up in the store when it speaks again.
pub const SESSIONS: usize = 16 * 1024;

/// Sessions of one peer: an agent has one, and its predecessor's while the outbox drains.
pub const SESSIONS_PER_PEER: usize = 8;

/// Memory that the dictionary of one session may take, and all those of one peer: about 300 000 series.
pub const SESSION_DICTIONARY_BYTES: usize = 64 * 1024 * 1024;

/// Memory that the dictionaries of one writer's sessions may take together. The sessions that were quiet for longest are
/// forgotten first.
pub const DICTIONARY_BYTES: usize = 1024 * 1024 * 1024;

/// How long a request to an agent (send again, send your dictionary) may be unanswered before it is repeated.
pub const REQUEST_AGAIN: Duration = Duration::from_secs(1);

/// Dictionaries that an agent may send for one frame. When it still speaks of unknown ids, it always will.
pub const DICTIONARIES_PER_FRAME: u32 = 3;

/// The silence after which a session counts as ended, unless configured. Agents send something every
/// 30 s, and may have to wait a minute until they send it again.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(300);

/// How often silent sessions are looked for, at least.
pub const SILENCE_LOOK: Duration = Duration::from_secs(30);

/// How far in the past a sample may lie where nothing else is said: an outbox that lived through a long maintenance.
pub const SAMPLE_AGE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How far in the future a sample may lie where nothing else is said: a clock that is a time zone off.
pub const SAMPLE_SKEW_MAX: Duration = Duration::from_secs(86_400);

/// The most that either may be set to. On plain PostgreSQL every day within may become a partition.
pub const SAMPLE_DISTANCE_MAX: Duration = Duration::from_secs(3660 * 86_400);

/// How often one peer is told that what it sends is refused.
pub const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// How often the log says that one peer is refused, or that one node's clock is far off.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Peers whose refusals are remembered. While it is full of recent ones, further peers get no answer.
pub const REFUSED_PEERS: usize = 1024;

/// Lines that the log has on refusals in one [`LOG_INTERVAL`], for a peer that connects anew is a new peer; and on
/// clocks, for it may be the collector's own that is off.
pub const LOG_MESSAGES: u32 = 20;

/// The first and the longest time between two attempts to reach the store.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How long the file of an SQLite store may be missing before another one is made: it may be on its way back.
pub const STORE_MISSING: Duration = Duration::from_secs(5);

/// How long a stopping collector tries to commit what it took. The agents keep what it does not acknowledge.
pub const SHUTDOWN_COMMIT: Duration = Duration::from_secs(10);

/// How long the socket must be silent before a stopping collector takes it to be empty, and how long it waits at most.
pub const SHUTDOWN_DRAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// How long the last acknowledgements may take to leave a stopping collector.
pub const LINGER_MS: i32 = 1_000;

/// After how many seconds of silence the kernel asks for a sign of life, how many later again, and how often before a
/// connection is given up: 35 seconds for a node that lost its power.
pub const KEEPALIVE: (i32, i32, i32) = (20, 5, 3);

/// Nodes that control knows, and jobs that they have together: some 100 MiB. What changed last is remembered.
pub const NODES: usize = 16 * 1024;

/// See [`NODES`].
pub const JOBS: usize = 256 * 1024;

/// Connections to each door of control at once: people who type, and their scripts.
pub const CONTROL_CONNECTIONS: usize = 256;

/// Connections of one user to the Unix socket at once, and requests of one user that are being answered: so that nobody
/// keeps the others out.
pub const CONTROL_PER_USER: usize = 16;

/// Bytes of a request, newline included, as on an agent's socket.
pub const REQUEST_BYTES: u64 = 64 * 1024;

/// Bytes of a request that came as a MUNGE credential: base64 adds a third, the nonce and MUNGE's own head a little.
pub const CREDENTIAL_BYTES: u64 = 96 * 1024;

/// How long a connection may say nothing, and how long it may take to read its answer.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(30);

/// How long after it came a request takes effect on all nodes: longer than a message is under way.
pub const EFFECT_AFTER_US: i64 = 250_000;

/// How long after a request took effect its answers may take.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Answers of agents that wait for control, which takes them at once. What does not fit counts as not answered.
pub const CONTROL_ANSWERS: usize = 1024;

/// Bytes of all nodes' answers to one request. Beyond that, nodes only say whether it was granted.
pub const JOB_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Requests that are remembered for agents that are away, and the bytes that they may have.
pub const REMEMBERED: usize = 4096;

/// See [`REMEMBERED`].
pub const REMEMBERED_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the file in which they outlive the collector: the requests, twice as long where quotes are escaped, and who has
/// heard them.
pub const KEPT_BYTES: usize = 3 * REMEMBERED_BYTES;

/// Credentials that are decoded at once; each is a process of its own.
pub const UNMUNGES: usize = 8;

/// How long munged may take to decode a credential.
pub const UNMUNGE_WITHIN: Duration = Duration::from_secs(5);

/// Keys of authorised agents: one per node of the largest machines there are, several times over.
pub const AUTHORISED_AGENTS: usize = 64 * 1024;

/// Files among the authorised keys of which the log says what is wrong with them.
pub const KEY_FAULTS: usize = 20;

/// How often the directory of authorised agents is looked at although nobody connects, so that it is noticed when the key
/// of somebody who is connected is removed.
pub const KEYS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a key file may have been edited in place before it counts. Other changes count at once.
pub const KEYS_REREAD_INTERVAL: Duration = Duration::from_secs(30);

/// Events of failed handshakes, and questions whose key it is, that are attended to before the rest of the gate's work.
pub const AUTH_BURST: usize = 256;

/// How long the gate waits for its socket to be closed: longer than the last acknowledgements may take.
pub const AUTH_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of a request for the collector's own metrics. A scraper's has a few hundred.
pub const HTTP_REQUEST_BYTES: usize = 8 * 1024;

/// Requests for the collector's own metrics that are attended to at once; further ones wait.
pub const HTTP_CONNECTIONS: usize = 8;

/// How long one request and its answer may take, so that who says nothing holds no connection.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
