//! Counters of the adapters of single drivers, `hw_counters`, under names of this catalogue. Sources:
//! `drivers/infiniband/hw/hfi1/chip.c`, `irdma/verbs.c` and `bnxt_re/hw_counters.c` of Linux.
//!
//! `hfi1` marks counters of 32 bits by a suffix, and has names for each virtual lane. `bnxt_re` since 6.15
//! has some of the names of `mlx5` instead. Numbers of objects that exist (`active_qps`) are no counters, and
//! are left out.

use super::infiniband_hardware::hardware_counters;
use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Devices, Form, RefreshUnit, Scale, TextFile};
use crate::series::Unit::{self, Bytes, Count, Cycles};

/// Counters by virtual lane of Omni-Path.
const fn by_lane(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values)
        .labelled(&["device", "port", "vl"])
        .of_devices(Devices::Named("hfi"))
        .blocking()
        .refreshed_by("lifespan", RefreshUnit::Milliseconds)
}

static TXFLITVL: TextFile = by_lane("class/infiniband/*/ports/*/hw_counters/TxFlitVL*");
static TXPKTVL: TextFile = by_lane("class/infiniband/*/ports/*/hw_counters/TxPktVL*");
static TXWAITVL: TextFile = by_lane("class/infiniband/*/ports/*/hw_counters/TxWaitVL*");

/// A flit of Omni-Path: eight octets.
const FLITS: Scale = Scale::Times(8);

const fn lane(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

/// The virtual lanes of Omni-Path.
pub(crate) static LANES: &[Metric] = &[
    lane(
        "node.infiniband.hw.vl.tx_bytes",
        Bytes,
        &[TXFLITVL.only_scaled(FLITS)],
        "Bytes that the port sent, by virtual lane (`hfi1`).",
    ),
    lane(
        "node.infiniband.hw.vl.tx_packets",
        Count,
        &[TXPKTVL.only()],
        "Packets that the port sent, by virtual lane (`hfi1`).",
    ),
    lane(
        "node.infiniband.hw.vl.tx_wait",
        Cycles,
        &[TXWAITVL.only()],
        "Ticks with data to send but no flow-control credit, by virtual lane (`hfi1`).",
    ),
];

/// The adapters of the node.
pub(crate) static METRICS: &[Metric] = hardware_counters! {
    "tx_dropped" from "TxDropped": Count, "Packets dropped before they were sent (`hfi1`).";
    "tx_flow_stall" from "TxFlowStall": Count, "Times that the sender stalled for want of flow-control credit (`hfi1`).";
    "tx_underrun" from "TxUnderrun": Count, "Packets whose data did not arrive in time to be sent (`hfi1`).";
    "tx_header_errors" from "TxHdrErr": Count, "Packets with an invalid header that were not sent (`hfi1`).";
    "tx_unsupported_vl" from "TxUnVLErr": Count, "Packets for a virtual lane that does not exist (`hfi1`).";
    "tx_length_errors" from "TxInvalLen": Count, "Packets of an invalid length that were not sent (`hfi1`).";
    "tx_discards" from "XmitDscd,32": Count => of_32_bits, "Packets that the port discarded, since the driver was loaded (`hfi1`).";
    "link_down" from "SwLinkDown,32": Count => of_32_bits, "Times that the link went down (`hfi1`).";
    "link_up" from "SwLinkUp,32": Count => of_32_bits, "Times that the link came up (`hfi1`).";
    "rc_resends" from "RcResend": Count, "Packets of reliable connections sent again (`hfi1`).";
    "rc_timeouts" from "RcTimeOut": Count, "Timeouts of reliable connections (`hfi1`).";
    "rc_sequence_naks" from "RcSeqNak": Count, "Negative acknowledgements of sequence errors received (`hfi1`).";
    "rc_duplicate_requests" from "RcDupRew": Count, "Duplicate requests of reliable connections received (`hfi1`).";
    "rnr_naks" from "RnrNak": Count, "Negative acknowledgements for want of receive work requests (RNR) received (`hfi1`).";
    "other_naks" from "OtherNak": Count, "Other negative acknowledgements received (`hfi1`).";
    "packet_drops" from "PktDrop": Count, "Packets received and dropped (`hfi1`).";
    "dma_waits" from "DmaWait": Count, "Times that a queue pair waited for a DMA descriptor (`hfi1`).";
    "ip4_in_bytes" from "ip4InOctets": Bytes, "Bytes received over IPv4 (`irdma`).";
    "ip4_out_bytes" from "ip4OutOctets": Bytes, "Bytes sent over IPv4 (`irdma`).";
    "ip4_in_packets" from "ip4InPkts": Count, "Packets received over IPv4 (`irdma`).";
    "ip4_out_packets" from "ip4OutPkts": Count, "Packets sent over IPv4 (`irdma`).";
    "ip4_in_discards" from "ip4InDiscards": Count, "Packets received over IPv4 and discarded (`irdma`).";
    "ip4_in_truncated" from "ip4InTruncatedPkts": Count, "Packets received over IPv4 that were truncated (`irdma`).";
    "ip4_out_no_routes" from "ip4OutNoRoutes": Count, "Packets that were not sent over IPv4 for want of a route (`irdma`).";
    "ip6_in_bytes" from "ip6InOctets": Bytes, "Bytes received over IPv6 (`irdma`).";
    "ip6_out_bytes" from "ip6OutOctets": Bytes, "Bytes sent over IPv6 (`irdma`).";
    "ip6_in_packets" from "ip6InPkts": Count, "Packets received over IPv6 (`irdma`).";
    "ip6_out_packets" from "ip6OutPkts": Count, "Packets sent over IPv6 (`irdma`).";
    "ip6_in_discards" from "ip6InDiscards": Count, "Packets received over IPv6 and discarded (`irdma`).";
    "ip6_in_truncated" from "ip6InTruncatedPkts": Count, "Packets received over IPv6 that were truncated (`irdma`).";
    "ip6_out_no_routes" from "ip6OutNoRoutes": Count, "Packets that were not sent over IPv6 for want of a route (`irdma`).";
    "tcp_retransmissions" from "tcpRetransSegs": Count, "TCP segments sent again (`irdma`, iWARP).";
    "tcp_in_protocol_errors" from "tcpInProtoErrors": Count, "TCP segments received with an error of the protocol (`irdma`, iWARP).";
    "in_rdma_reads" from "iwInRdmaReads": Count, "RDMA reads received (`irdma`).";
    "in_rdma_sends" from "iwInRdmaSends": Count, "RDMA sends received (`irdma`).";
    "in_rdma_writes" from "iwInRdmaWrites": Count, "RDMA writes received (`irdma`).";
    "out_rdma_reads" from "iwOutRdmaReads": Count, "RDMA reads sent (`irdma`).";
    "out_rdma_sends" from "iwOutRdmaSends": Count, "RDMA sends sent (`irdma`).";
    "out_rdma_writes" from "iwOutRdmaWrites": Count, "RDMA writes sent (`irdma`).";
    "cnp_handled" from "cnpHandled": Count, "Congestion notifications (CNP) that slowed the sender (`irdma`).";
    "cnp_ignored" from "cnpIgnored": Count, "Congestion notifications (CNP) that were ignored (`irdma`).";
    "cnp_sent" from "cnpSent": Count, "Congestion notifications (CNP) sent because of marked packets (`irdma`).";
    "rx_ecn_marked_packets" from "RxECNMrkd": Count, "Packets received with the mark of congestion (ECN) (`irdma`).";
    "rx_vlan_errors" from "rxVlanErrors": Count, "Packets received for another VLAN (`irdma`).";
    "recoverable_errors" from "recoverable_errors": Count, "Errors from which the adapter recovered (`bnxt_re`).";
    "unrecoverable_errors" from "unrecoverable_err": Count, "Errors from which the adapter did not recover (`bnxt_re`).";
    "tx_roce_errors" from "tx_roce_errors": Count, "RoCE packets with an error that were not sent (`bnxt_re`).";
    "tx_roce_discards" from "tx_roce_discards": Count, "RoCE packets that were discarded and not sent (`bnxt_re`).";
    "rx_roce_errors" from "rx_roce_errors": Count, "RoCE packets received with an error (`bnxt_re`).";
    "rx_roce_discards" from "rx_roce_discards": Count, "RoCE packets received and discarded (`bnxt_re`).";
    "to_retransmits" from "to_retransmits": Count, "Retransmissions after a timeout (`bnxt_re`).";
    "seq_err_naks_rcvd" from "seq_err_naks_rcvd": Count, "Negative acknowledgements of sequence errors received (`bnxt_re`).";
    "rnr_naks_rcvd" from "rnr_naks_rcvd": Count, "Negative acknowledgements for want of receive work requests (RNR) received (`bnxt_re`).";
    "max_retry_exceeded" from "max_retry_exceeded": Count, "Requests that ran out of retries (`bnxt_re`).";
    "missing_resp" from "missing_resp": Count, "Responses that were expected and did not arrive (`bnxt_re`).";
    "dup_req" from "dup_req": Count, "Duplicate requests received (`bnxt_re`).";
    "oos_drop_count" from "oos_drop_count": Count, "Packets received out of sequence and dropped (`bnxt_re`).";
    "tx_cnp" from "tx_cnp": Count, "Congestion notifications (CNP) sent (`bnxt_re`).";
    "rx_cnp" from "rx_cnp": Count, "Congestion notifications (CNP) received (`bnxt_re`).";
    "rx_ecn_marked" from "rx_ecn_marked": Count, "RoCE packets received with the mark of congestion (ECN) (`bnxt_re`).";
};
