//! Mounts of NFS. Source: `fs/nfs/super.c` (`nfs_show_stats`) and `net/sunrpc/stats.c` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{self, Bytes, Count, Nanoseconds, Pages};

const fn mountstats(field: &'static str) -> Origin {
    Origin::source("nfs", field, "`/proc/self/mountstats`")
}

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

/// The node's mounts.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "node.nfs.read.bytes",
        Bytes,
        &[mountstats("read_bytes")],
        "Bytes that applications read, from the page cache as well.",
    ),
    counter("node.nfs.write.bytes", Bytes, &[mountstats("write_bytes")], "Bytes that applications wrote."),
    counter(
        "node.nfs.direct.read.bytes",
        Bytes,
        &[mountstats("direct_read_bytes")],
        "Bytes that applications read with O_DIRECT.",
    ),
    counter(
        "node.nfs.direct.write.bytes",
        Bytes,
        &[mountstats("direct_write_bytes")],
        "Bytes that applications wrote with O_DIRECT.",
    ),
    counter(
        "node.nfs.server.read.bytes",
        Bytes,
        &[mountstats("server_read_bytes")],
        "Bytes read from the server.",
    ),
    counter(
        "node.nfs.server.write.bytes",
        Bytes,
        &[mountstats("server_write_bytes")],
        "Bytes written to the server.",
    ),
    counter("node.nfs.read.pages", Pages, &[mountstats("read_pages")], "Pages read into the page cache."),
    counter(
        "node.nfs.write.pages",
        Pages,
        &[mountstats("write_pages")],
        "Pages written from the page cache.",
    ),
    counter(
        "node.nfs.data_invalidations",
        Count,
        &[mountstats("data_invalidations")],
        "Files whose cached data were dropped because they changed on the server.",
    ),
    counter(
        "node.nfs.attribute_invalidations",
        Count,
        &[mountstats("attribute_invalidations")],
        "Times that cached attributes were found stale.",
    ),
    counter("node.nfs.opens", Count, &[mountstats("opens")], "Files and directories opened."),
    counter("node.nfs.fsyncs", Count, &[mountstats("fsyncs")], "Calls of fsync."),
    counter(
        "node.nfs.silly_renames",
        Count,
        &[mountstats("silly_renames")],
        "Files removed while they were open.",
    ),
    counter(
        "node.nfs.short_reads",
        Count,
        &[mountstats("short_reads")],
        "Reads for which the server sent less than wanted.",
    ),
    counter(
        "node.nfs.short_writes",
        Count,
        &[mountstats("short_writes")],
        "Writes of which the server took less than sent.",
    ),
    counter(
        "node.nfs.delays",
        Count,
        &[mountstats("delays")],
        "Times that the server asked to try later (JUKEBOX, NFS4ERR_DELAY).",
    ),
    counter(
        "node.nfs.transport.connects",
        Count,
        &[mountstats("connects")],
        "Connections made to the server; connections may be shared by mounts.",
    ),
    counter(
        "node.nfs.transport.sends",
        Count,
        &[mountstats("sends")],
        "Requests sent to the server; connections may be shared by mounts.",
    ),
    counter(
        "node.nfs.transport.receives",
        Count,
        &[mountstats("receives")],
        "Replies received from the server; connections may be shared by mounts.",
    ),
    counter(
        "node.nfs.transport.bad_xids",
        Count,
        &[mountstats("bad_xids")],
        "Replies that belong to no request.",
    ),
    counter(
        "node.nfs.transport.backlog",
        Count,
        &[mountstats("backlog")],
        "Length of the queue for a free slot, added at each request: its increase divided by that of the requests sent is the mean length.",
    ),
    counter("node.nfs.operations", Count, &[mountstats("operations")], "Operations completed, by operation."),
    counter(
        "node.nfs.operation.transmissions",
        Count,
        &[mountstats("transmissions")],
        "Transmissions of requests, by operation: those beyond the operations are repetitions.",
    ),
    counter(
        "node.nfs.operation.timeouts",
        Count,
        &[mountstats("timeouts")],
        "Requests without a reply in time, by operation.",
    ),
    counter(
        "node.nfs.operation.sent.bytes",
        Bytes,
        &[mountstats("sent_bytes")],
        "Bytes of requests, headers included, by operation.",
    ),
    counter(
        "node.nfs.operation.received.bytes",
        Bytes,
        &[mountstats("received_bytes")],
        "Bytes of replies, headers included, by operation.",
    ),
    counter(
        "node.nfs.operation.queue.time",
        Nanoseconds,
        &[mountstats("queue_time")],
        "Time of requests before they were sent, by operation.",
    ),
    counter(
        "node.nfs.operation.response.time",
        Nanoseconds,
        &[mountstats("response_time")],
        "Time between request and reply, by operation.",
    ),
    counter(
        "node.nfs.operation.execution.time",
        Nanoseconds,
        &[mountstats("execution_time")],
        "Time of requests from their beginning to their end, by operation.",
    ),
    counter(
        "node.nfs.operation.errors",
        Count,
        &[mountstats("errors")],
        "Operations that ended with an error, by operation; since Linux 5.3.",
    ),
];
