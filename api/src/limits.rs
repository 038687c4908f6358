//! All limits of the API, with their reasons.

use std::time::Duration;

/// Each has a buffer and a descriptor.
pub(crate) const CONNECTIONS: usize = 1024;

/// Connections that only administrators and proxies have.
pub(crate) const RESERVED_CONNECTIONS: usize = 32;

/// Reserved connections that only administrators have: a proxy passes on the requests of any number of users.
pub(crate) const ADMINISTRATORS_CONNECTIONS: usize = 16;

/// Live streams that administrators have beyond those for all.
pub(crate) const RESERVED_STREAMS: usize = 8;

/// Reads at a time that administrators have beyond those for all.
pub(crate) const RESERVED_READS: usize = 1;

/// Places of each user of the Unix socket that is no proxy, so that no user excludes others.
pub(crate) const CONNECTIONS_PER_USER: usize = 32;

/// Time for which a request waits until its user has fewer in progress: all panels of a dashboard ask at
/// once.
pub(crate) const PLACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a refused request keeps its place.
pub(crate) const REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// Time for the answer to a refused connection.
pub(crate) const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Age up to which the answer to `/ready` is used again, so that load balancers do not load the store.
pub(crate) const READY_AGE_NS: u64 = 1_000_000_000;

/// Connections that are being refused at once. Further ones are closed without an answer.
pub(crate) const REFUSALS: usize = 32;

/// After a failed accept probably no descriptor is free, and an immediate retry would fail, too.
pub(crate) const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// The head of a request must arrive in this time, so that a silent client holds no connection.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Head of a request: ids of some thousand series.
pub(crate) const HEAD_BYTES: usize = 64 * 1024;

pub(crate) const HEADERS: usize = 64;

/// Body of a request, as on an agent's socket.
pub(crate) const BODY_BYTES: usize = 64 * 1024;

pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Part of an answer that is sent at once.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks of one answer that wait for the client. While there are as many, the store is not read.
pub(crate) const CHUNKS: usize = 4;

/// Time without progress after which a client that does not read its answer is disconnected.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// Part of a core that all reads together get while ingest is behind.
pub(crate) const BEHIND_READ_SHARE: f64 = 0.1;

/// Seconds of work that reads may do at once while ingest is behind: the requests of a page that is opened.
pub(crate) const BEHIND_READ_BURST_S: f64 = 0.1;

/// Work after which a read checks whether it has to pause.
pub(crate) const BEHIND_READ_SLICE_NS: u64 = 5_000_000;

/// Longest pause of a user for the user's own reads, and for those of others.
pub(crate) const BEHIND_OWN_PAUSE: Duration = Duration::from_secs(60);
pub(crate) const BEHIND_COMMON_PAUSE: Duration = Duration::from_secs(2);

/// Interval at which a pausing read checks whether ingest is still behind.
pub(crate) const BEHIND_READ_PAUSE: Duration = Duration::from_millis(50);

/// How long a stream gathers events while ingest is behind.
pub(crate) const BEHIND_STREAM_PAUSE: Duration = Duration::from_millis(100);

/// An older connection to the store is not used again, so that a moved or restarted store is noticed.
pub(crate) const READER_AGE_NS: u64 = 10_000_000_000;

/// Principals whose use is remembered. Those without requests in progress and with full buckets are forgotten
/// first.
pub(crate) const PRINCIPALS: usize = 16 * 1024;

/// Seconds of requests and of bytes that a principal may use at once.
pub(crate) const BURST_S: f64 = 10.0;

/// Failed authentications a second, of all clients together, after which the reason is not told. Successful
/// ones do not count.
pub(crate) const FAILURES_PER_S: f64 = 20.0;

/// Failed authentications a second of one client, after which its unknown tokens are looked up in turn.
pub(crate) const PEER_FAILURES_PER_S: f64 = 2.0;

/// Delay of the next token of such a client after a wrong one. With all connections waiting, the last one
/// waits for some seconds.
pub(crate) const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(5);

pub(crate) const FAILING_PEERS: usize = 4096;

/// An accepted token is not looked up again for this time: the bound for a revocation through another
/// collector.
pub(crate) const TOKEN_AGE_NS: u64 = 5_000_000_000;

/// Accepted tokens that are remembered. The one that was looked up first is forgotten first.
pub(crate) const KNOWN_TOKENS: usize = 4096;

/// Time for a look-up or a change of tokens.
pub(crate) const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two records of a token's use, so that requests do not write to the store.
pub(crate) const TOKEN_USE_INTERVAL_US: i64 = 10 * 60 * 1_000_000;

pub(crate) const TOKENS_PER_USER: usize = 32;

/// Lifetime of a token if the request has none: a forgotten token ends by itself.
pub(crate) const TOKEN_DAYS: u32 = 30;

pub(crate) const TOKEN_DAYS_MAX: u32 = 366;

/// How long an expired token remains in lists.
pub(crate) const TOKEN_KEPT_US: i64 = 30 * 86_400_000_000;

/// How long a stopping API waits for its threads.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Niceness of the API's threads: ingest comes first.
pub(crate) const NICENESS: i32 = 5;

/// Time for an answer of the coordinator, which itself waits for agents.
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) const TEXT_CHARACTERS: usize = 256;

/// Jobs on a page by default, and at most. The store's own limit for remote readers is the same.
pub(crate) const PAGE_JOBS: i64 = 100;

/// Agents on a page by default, and at most.
pub(crate) const PAGE_AGENTS: i64 = 1000;

/// Jobs that are counted above a list. Of more, only that there are more is said.
pub(crate) const COUNTED_JOBS: u32 = 1000;

/// Ended jobs among which those that wasted most are looked for.
pub(crate) const JUDGED_JOBS: u32 = 5000;

/// Jobs of one request for their cores: those of a page.
pub(crate) const LISTED_JOBS: usize = 100;

pub(crate) const SPARK_PARTS: i64 = 24;

/// Intervals of a rollup that are read for a job in a list, if a coarser rollup exists.
pub(crate) const SPARK_INTERVALS: i64 = 5_000;

/// Ended jobs whose cores are kept, 200 bytes each.
pub(crate) const KEPT_CORES: usize = 20_000;

pub(crate) const TREND_LOSSES: u32 = 10_000;

/// This long after the end of a job its samples are complete in all but exceptional cases.
pub(crate) const SETTLED_NS: i64 = 300_000_000_000;

/// Notices in an answer by default, and at most.
pub(crate) const NOTICES: i64 = 1000;

/// Groups of jobs whose efficiency is returned by default, and at most.
pub(crate) const USAGE_GROUPS: i64 = 1000;

pub(crate) const SELECTORS: usize = 64;

/// Ids of series in one query, so that the longest ones fit the head of a request.
pub(crate) const LISTED_SERIES: usize = 3000;

/// Jobs on one side of a comparison, each of which is read like a report.
pub(crate) const COMPARED_JOBS: usize = 16;

pub(crate) const SERIES: usize = 10_000;

/// Points of a series in one request: more than any screen has columns.
pub(crate) const POINTS: i64 = 10_000;

pub(crate) const QUERY_NODES: usize = 100;

/// Jobs with the same id in one query in Kwollect's form.
pub(crate) const QUERY_JOBS: u32 = 10;

/// Points of all series in one request.
pub(crate) const ALL_POINTS: u64 = 5_000_000;

/// Points of a stream, a second and series: more than a chart of some minutes has columns.
pub(crate) const STREAM_RATE: i64 = 20;

/// Events that wait for a client: some minutes of commits.
pub(crate) const STREAM_EVENTS: usize = 256;

/// Bytes of events that wait for a client: with 256 streams at most 128 MiB. Streams that ask for the same
/// share them.
pub(crate) const STREAM_BYTES: usize = 512 * 1024;

/// Points of one event, about 64 KiB.
pub(crate) const EVENT_POINTS: usize = 1000;

/// Series that one event describes: their labels have some KiB each at most.
pub(crate) const EVENT_SERIES: usize = 100;

/// Time after which the client connects again, and its rights are checked anew.
pub(crate) const STREAM_SECONDS: i64 = 600;

/// How often a stream reads whether its job has ended, whether the user may still see it, and whether its
/// token is valid.
const STREAM_REFRESH: Duration = Duration::from_secs(30);

/// Silence after which a stream sends a comment: proxies give up after a minute, and pages after 15 s
/// (page/assets/site/live.js).
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Time for the last values of a job that has ended, which may still be on their way from the writers.
pub(crate) const STREAM_DRAIN: Duration = Duration::from_secs(1);

/// Longest pause of a stream whose user has read too much.
pub(crate) const STREAM_PAUSE: Duration = Duration::from_secs(10);

/// How long a stopping API waits until the streams have sent their last event.
pub(crate) const STREAM_STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// How often it looks meanwhile.
pub(crate) const STREAM_STOP_INTERVAL: Duration = Duration::from_millis(5);

/// Latest time in parameters, in microseconds since the epoch: the end of the year 9999.
pub(crate) const LATEST_US: i64 = 253_402_300_799_999_999;

/// Limits that the configuration sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiLimits {
    /// Connections to the store, each with a thread.
    pub readers: usize,
    /// Time for reading one answer, whose statement is cancelled then.
    pub query_timeout: Duration,
    pub user_requests: usize,
    /// Mean over some seconds, of one user.
    pub user_requests_per_second: u32,
    /// Mean over some seconds, of one user.
    pub user_bytes_per_second: u64,
    pub streams: usize,
    pub user_streams: usize,
    pub stream_stall: Duration,
    pub stream_refresh: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            readers: 4,
            query_timeout: Duration::from_secs(60),
            user_requests: 8,
            user_requests_per_second: 50,
            user_bytes_per_second: 64 * 1024 * 1024,
            streams: 256,
            user_streams: 16,
            stream_stall: STALL_TIMEOUT,
            stream_refresh: STREAM_REFRESH,
        }
    }
}

/// Series of a job whose sum over nodes and time one request can have: two metrics of 10,000 nodes.
pub(crate) const COURSE_SERIES: usize = 20_000;

/// Parts of the time of all nodes together, each of 24 bytes in memory, and the fewest of one node.
pub(crate) const COURSE_CELLS: usize = 1_000_000;
pub(crate) const COURSE_POINTS_MIN: usize = 10;

/// Intervals of a rollup that are read for one course, if a coarser rollup exists.
pub(crate) const COURSE_INTERVALS: i64 = 200_000;

/// Distinct texts of one kind that an answer about many nodes lists.
pub(crate) const LISTED_TEXTS: usize = 20;

/// Answers about running jobs that are kept for other pages of the same job, and their greatest age.
pub(crate) const RECENT_ANSWERS: usize = 256;
pub(crate) const RECENT_AGE_NS: u64 = 10_000_000_000;
