//! Counters of adapters beyond the standard ones, by the driver's names. Source:
//! `Documentation/ABI/stable/sysfs-class-infiniband` of Linux (`hw_counters`),
//! `drivers/infiniband/hw/mlx5/counters.c` for the names of `mlx5`, and
//! `drivers/infiniband/hw/efa/efa_verbs.c` for those of EFA, some of which others have, too.
//!
//! The driver shows them for each port or, as with virtual switches, for the device. It reads them from the
//! adapter once in `lifespan` milliseconds at most, and repeats them in between. The adapters of `mlx5` count
//! what is marked here in 32 bits (`mlx5_ib_query_q_counters`), and begin at 0 again.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, RefreshUnit, TextFile};
use crate::series::Unit::{Bytes, Count};

/// Declares the metric of each file, and the width of counters that wrap around.
macro_rules! hardware_counters {
    ($($name:literal from $file:literal: $unit:expr $(=> $width:ident)?, $help:literal;)*) => {
        &[$(Metric::counter(
            concat!("node.infiniband.hw.", $name),
            $unit,
            {
                static PORT: TextFile =
                    TextFile::sys(concat!("class/infiniband/*/ports/*/hw_counters/", $file), Form::Values)
                        .labelled(&["device", "port"])
                        .blocking()
                        .refreshed_by("lifespan", RefreshUnit::Milliseconds);
                static DEVICE: TextFile =
                    TextFile::sys(concat!("class/infiniband/*/hw_counters/", $file), Form::Values)
                        .labelled(&["device"])
                        .blocking()
                        .refreshed_by("lifespan", RefreshUnit::Milliseconds);
                &[PORT.only(), DEVICE.only()]
            },
            $help,
        )
        $(.$width(1))?
        .of_node()),*]
    };
}

pub(super) use hardware_counters;

/// The adapters of the node.
pub(crate) static METRICS: &[Metric] = hardware_counters! {
    "out_of_buffer" from "out_of_buffer": Count => of_32_bits, "Packets dropped for want of receive work requests.";
    "out_of_sequence" from "out_of_sequence": Count => of_32_bits, "Packets received out of sequence.";
    "duplicate_request" from "duplicate_request": Count => of_32_bits, "Duplicate requests received: the requester repeated them.";
    "packet_seq_err" from "packet_seq_err": Count => of_32_bits, "Negative acknowledgements of sequence errors received.";
    "implied_nak_seq_err" from "implied_nak_seq_err": Count => of_32_bits, "Acknowledgements received with a higher sequence number than expected.";
    "local_ack_timeout_err" from "local_ack_timeout_err": Count => of_32_bits, "Times that the sender's acknowledgement timer expired.";
    "rnr_nak_retry_err" from "rnr_nak_retry_err": Count => of_32_bits, "Negative acknowledgements for want of receive work requests (RNR) received.";
    "req_cqe_error" from "req_cqe_error": Count => of_32_bits, "Completions with an error, of requests.";
    "req_cqe_flush_error" from "req_cqe_flush_error": Count => of_32_bits, "Completions flushed with an error, of requests.";
    "req_remote_access_errors" from "req_remote_access_errors": Count => of_32_bits, "Remote access errors detected by the requester.";
    "req_remote_invalid_request" from "req_remote_invalid_request": Count => of_32_bits, "Remote invalid requests detected by the requester.";
    "req_transport_retries_exceeded" from "req_transport_retries_exceeded": Count => of_32_bits, "Requests that ran out of transport retries.";
    "req_rnr_retries_exceeded" from "req_rnr_retries_exceeded": Count => of_32_bits, "Requests that ran out of RNR retries.";
    "resp_cqe_error" from "resp_cqe_error": Count => of_32_bits, "Completions with an error, of responses.";
    "resp_cqe_flush_error" from "resp_cqe_flush_error": Count => of_32_bits, "Completions flushed with an error, of responses.";
    "resp_local_length_error" from "resp_local_length_error": Count => of_32_bits, "Local length errors detected by the responder.";
    "resp_remote_access_errors" from "resp_remote_access_errors": Count => of_32_bits, "Remote access errors detected by the responder.";
    "rx_read_requests" from "rx_read_requests": Count => of_32_bits, "RDMA reads received.";
    "rx_write_requests" from "rx_write_requests": Count => of_32_bits, "RDMA writes received.";
    "rx_atomic_requests" from "rx_atomic_requests": Count => of_32_bits, "RDMA atomic operations received.";
    "rx_dct_connect" from "rx_dct_connect": Count => of_32_bits, "Connection requests received for dynamically connected transport.";
    "rx_icrc_encapsulated" from "rx_icrc_encapsulated": Count, "RoCE packets received with an error of the invariant CRC.";
    "np_cnp_sent" from "np_cnp_sent": Count, "Congestion notifications (CNP) sent because of marked packets.";
    "np_ecn_marked_roce_packets" from "np_ecn_marked_roce_packets": Count, "RoCE packets received with the mark of congestion (ECN).";
    "rp_cnp_handled" from "rp_cnp_handled": Count, "Congestion notifications that slowed the sender.";
    "rp_cnp_ignored" from "rp_cnp_ignored": Count, "Congestion notifications that were ignored.";
    "roce_adp_retrans" from "roce_adp_retrans": Count => of_32_bits, "Adaptive retransmissions of RoCE.";
    "roce_adp_retrans_to" from "roce_adp_retrans_to": Count => of_32_bits, "Timeouts of adaptive retransmission of RoCE.";
    "roce_slow_restart" from "roce_slow_restart": Count => of_32_bits, "Slow restarts of RoCE.";
    "roce_slow_restart_cnps" from "roce_slow_restart_cnps": Count => of_32_bits, "Congestion notifications made by slow restarts of RoCE.";
    "roce_slow_restart_trans" from "roce_slow_restart_trans": Count => of_32_bits, "Transitions to slow restart of RoCE.";
    "tx_bytes" from "tx_bytes": Bytes, "Bytes sent.";
    "tx_pkts" from "tx_pkts": Count, "Packets sent.";
    "rx_bytes" from "rx_bytes": Bytes, "Bytes received.";
    "rx_pkts" from "rx_pkts": Count, "Packets received.";
    "rx_drops" from "rx_drops": Count, "Packets received and dropped.";
    "send_bytes" from "send_bytes": Bytes, "Bytes of messages sent.";
    "send_wrs" from "send_wrs": Count, "Messages sent.";
    "recv_bytes" from "recv_bytes": Bytes, "Bytes of messages received.";
    "recv_wrs" from "recv_wrs": Count, "Messages received.";
    "rdma_read_wrs" from "rdma_read_wrs": Count, "RDMA reads.";
    "rdma_read_bytes" from "rdma_read_bytes": Bytes, "Bytes of RDMA reads.";
    "rdma_read_wr_err" from "rdma_read_wr_err": Count, "RDMA reads that failed.";
    "rdma_read_resp_bytes" from "rdma_read_resp_bytes": Bytes, "Bytes sent in response to RDMA reads.";
    "rdma_write_wrs" from "rdma_write_wrs": Count, "RDMA writes.";
    "rdma_write_bytes" from "rdma_write_bytes": Bytes, "Bytes of RDMA writes.";
    "rdma_write_wr_err" from "rdma_write_wr_err": Count, "RDMA writes that failed.";
    "rdma_write_recv_bytes" from "rdma_write_recv_bytes": Bytes, "Bytes received by RDMA writes of others.";
    "retrans_bytes" from "retrans_bytes": Bytes, "Bytes sent again.";
    "retrans_pkts" from "retrans_pkts": Count, "Packets sent again.";
    "retrans_timeout_events" from "retrans_timeout_events": Count, "Timeouts after which another path of the network was used.";
    "unresponsive_remote_events" from "unresponsive_remote_events": Count, "Times that a remote side did not respond.";
    "impaired_remote_conn_events" from "impaired_remote_conn_events": Count, "Times that a connection was found impaired.";
};
