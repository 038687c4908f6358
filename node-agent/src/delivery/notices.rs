//! Log messages of the sender.

use polymeter_proto::units::counted;
use tracing::{info, warn};

use super::collector_choice::Moved;
use super::outage::OutageNotice;
use super::session::SessionNotice;

/// `waiting_bytes` of samples wait meanwhile.
pub(super) fn log_outage(collector: &str, notice: OutageNotice, waiting_bytes: u64) {
    let kib = waiting_bytes.div_ceil(1024);
    let seconds = |ns: u64| ns / 1_000_000_000;
    match notice {
        OutageNotice::Began { connected: false, for_ns } => warn!(
            error = %format_args!("no connection for {} s; {kib} KiB of samples are waiting", seconds(for_ns)),
            remedy = "check that polymeter-collector runs there and that `collector` in the configuration is right",
            "cannot reach the collector at {collector}"
        ),
        OutageNotice::Began { connected: true, for_ns } => warn!(
            error = %format_args!(
                "it has acknowledged nothing for {} s; {kib} KiB of samples are waiting", seconds(for_ns)
            ),
            remedy = "check the collector's log: its store may be unavailable",
            "cannot deliver to the collector at {collector}"
        ),
        OutageNotice::Ended { for_ns } => info!(
            "the collector at {collector} is reachable again after {} s; {kib} KiB of samples are waiting",
            seconds(for_ns)
        ),
    }
}

pub(super) fn log_move(moved: &Moved, to: &str) {
    let Moved { from, is_return } = moved;
    if *is_return {
        info!("returning from the collector at {from} to {to}, the first of `collector`");
    } else {
        warn!("the collector at {from} does not serve; delivering to {to} from now on");
    }
}

pub(super) fn log_lost_events(events: u64) {
    warn!(
        error = %format_args!(
            "{events} are lost so far: their frames were dropped or refused, and too many wait to be sent again"
        ),
        remedy = "set `spool`, or a larger `outbox_bytes`",
        "cannot deliver changes of plan, ends of jobs and other events"
    );
}

pub(super) fn log_session(notice: SessionNotice) {
    match notice {
        SessionNotice::Ordinary => {}
        SessionNotice::Refused { reason } => warn!(
            error = %reason,
            "cannot deliver samples: the collector refuses this agent's messages"
        ),
        SessionNotice::GivenUp { sequence, samples, reason } => warn!(
            error = %format_args!("the collector refused it repeatedly: {reason}; counted as lost: {}", counted(samples, "sample")),
            "cannot deliver frame {sequence}"
        ),
    }
}
