//! Slingshot adapters (Cassini). Source: the counters of `cassini_cntr_desc.h` of HPE's Slingshot host
//! software, by the groups that its guide and LDMS's `slingshot_metrics` name. A file has the value, an `@`
//! and the time at which the driver read it from the adapter: libfabric (`prov/cxi/src/cxip_telemetry.c`)
//! reads it as `%ld@%ld.%ld`. Counters are 56 bits wide.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, Scale, TextFile};
use crate::series::Unit::{Bytes, Count, Cycles};

/// Declares the metric of each file, and the label of the file's `*`.
macro_rules! metrics {
    ($($name:literal, $unit:expr, $file:literal $(by $label:literal)?, $help:literal;)*) => {
        &[$(Metric::counter(
            concat!("node.slingshot.", $name),
            $unit,
            {
                static FILE: TextFile = TextFile::sys(concat!("class/cxi/*/device/telemetry/", $file), Form::Values)
                    .labelled(&["device" $(, $label)?])
                    .blocking();
                &[FILE.only_scaled(Scale::Timed)]
            },
            $help,
        )
        .of_node()),*]
    };
}

/// The adapters of the node.
pub(crate) static METRICS: &[Metric] = metrics! {
    "transmit.bytes", Bytes, "hni_sts_tx_ok_octets", "Bytes that the adapter sent in frames without an error.";
    "receive.bytes", Bytes, "hni_sts_rx_ok_octets", "Bytes that the adapter received in frames without an error.";
    "transmit.bad.bytes", Bytes, "hni_sts_tx_bad_octets", "Bytes that the adapter sent in frames with an error.";
    "receive.bad.bytes", Bytes, "hni_sts_rx_bad_octets", "Bytes that the adapter received in frames with an error.";
    "transmit.packets", Count, "hni_pkts_sent_by_tc_*" by "traffic_class", "Packets that the adapter sent, by traffic class.";
    "receive.packets", Count, "hni_pkts_recv_by_tc_*" by "traffic_class", "Packets that the adapter received, by traffic class.";
    "transmit.multicast.packets", Count, "hni_multicast_pkts_sent_by_tc_*" by "traffic_class", "Multicast packets that the adapter sent, by traffic class.";
    "receive.multicast.packets", Count, "hni_multicast_pkts_recv_by_tc_*" by "traffic_class", "Multicast packets that the adapter received, by traffic class.";
    "transmit.paused", Cycles, "hni_tx_paused_*" by "traffic_class", "Cycles in which the network paused the adapter's sending.";
    "receive.paused", Cycles, "hni_rx_paused_*" by "traffic_class", "Cycles in which the adapter paused the network's sending; `std` for pauses of all classes.";
    "receive.discards", Count, "hni_discard_cntr_*" by "traffic_class", "Packets that the adapter discarded on reception.";
    "link.corrected_codewords", Count, "hni_pcs_corrected_cw", "Codewords of the link that were corrected.";
    "link.uncorrected_codewords", Count, "hni_pcs_uncorrected_cw", "Codewords of the link that could not be corrected.";
    "link.good_codewords", Count, "hni_pcs_good_cw", "Codewords of the link without an error.";
    "link.transmit.replays", Count, "hni_llr_tx_replay_event", "Replays by the link's retry in the direction to the network.";
    "link.receive.replays", Count, "hni_llr_rx_replay_event", "Replays by the link's retry in the direction from the network.";
    "host.posted.packets", Count, "parbs_tarb_pi_posted_pkts", "PCIe packets on the posted path, mostly writes to memory.";
    "host.posted.blocked", Cycles, "parbs_tarb_pi_posted_blocked_cnt", "Cycles in which the posted path of PCIe was blocked.";
    "host.nonposted.packets", Count, "parbs_tarb_pi_non_posted_pkts", "PCIe packets on the non-posted path, mostly reads from memory.";
    "host.nonposted.blocked", Cycles, "parbs_tarb_pi_non_posted_blocked_cnt", "Cycles in which the non-posted path of PCIe was blocked.";
    "match.priority", Count, "lpe_net_match_priority_*" by "engine", "Messages that matched a receive buffer posted before, by processing engine.";
    "match.overflow", Count, "lpe_net_match_overflow_*" by "engine", "Messages that arrived before their receive buffer was posted, by processing engine.";
    "match.request", Count, "lpe_net_match_request_*" by "engine", "Messages that software must match, by processing engine.";
    "requests.ordered", Count, "pct_req_ordered", "Ordered requests.";
    "requests.unordered", Count, "pct_req_unordered", "Unordered requests.";
    "responses", Count, "pct_responses_received", "Responses received.";
    "nacks.no_connection", Count, "pct_no_tct_nacks", "Negative acknowledgements for want of a target connection.";
    "nacks.no_result_store", Count, "pct_no_trs_nacks", "Negative acknowledgements for want of a target result store.";
    "nacks.no_message_state", Count, "pct_no_mst_nacks", "Negative acknowledgements for want of a message state.";
    "nacks.resource_busy", Count, "pct_resource_busy", "Negative acknowledgements because a resource was busy.";
    "nacks.sequence", Count, "pct_bad_seq_nacks", "Negative acknowledgements of sequence errors.";
    "nacks.dropped", Count, "pct_trs_rsp_nack_drops", "Negative acknowledgements that were dropped.";
    "retries", Count, "pct_retry_srb_requests", "Requests that were sent again.";
    "timeouts.packet", Count, "pct_spt_timeouts", "Packets without an answer in time.";
    "timeouts.connection", Count, "pct_sct_timeouts", "Source connections without an answer in time.";
    "congestion.request.marked", Count, "ixe_tc_req_ecn_pkts_*" by "traffic_class", "Requests received with the mark of congestion, by traffic class.";
    "congestion.request.unmarked", Count, "ixe_tc_req_no_ecn_pkts_*" by "traffic_class", "Requests received without the mark of congestion, by traffic class.";
    "congestion.response.marked", Count, "ixe_tc_rsp_ecn_pkts_*" by "traffic_class", "Responses received with the mark of congestion, by traffic class.";
    "congestion.response.unmarked", Count, "ixe_tc_rsp_no_ecn_pkts_*" by "traffic_class", "Responses received without the mark of congestion, by traffic class.";
    "translation.misses", Count, "atu_cache_miss_*" by "page_size", "Misses of the cache of address translations, by index of the page size.";
    "translation.evictions", Count, "atu_cache_evictions", "Evictions from the cache of address translations.";
};
