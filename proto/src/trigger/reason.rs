//! Why triggers fire at events of a job, for people.

use super::JobEvent;

pub const OOM_KILL: &str = "the kernel killed a process for lack of memory";
pub const OUT_OF_MEMORY: &str = "the scheduler states that the job ran out of memory";
pub const AT_TIME_LIMIT: &str = "the scheduler ended the job at its time limit";

const EXIT_STATUS: &str = "exit status ";
const SIGNAL: &str = "signal ";
const XID: &str = "the driver reported an error of GPU ";

pub fn exit_status(status: u32) -> String {
    format!("{EXIT_STATUS}{status}")
}

pub fn signal(number: u32) -> String {
    format!("{SIGNAL}{number}")
}

/// `gpu` is the GPU's number on its node, `number` that of the error.
pub fn xid(gpu: &str, number: Option<f64>) -> String {
    let number = number.map_or_else(String::new, |number| format!(" (XID {number})"));
    format!("{XID}{gpu}{number}")
}

/// Event of a reason, after which values of metrics may stand; none if it is only about metrics.
pub fn event_of(why: &str) -> Option<JobEvent> {
    let begins = [
        (OOM_KILL, JobEvent::Oom),
        (OUT_OF_MEMORY, JobEvent::Oom),
        (XID, JobEvent::Xid),
        (AT_TIME_LIMIT, JobEvent::TimeLimit),
        (EXIT_STATUS, JobEvent::ExitStatus),
        (SIGNAL, JobEvent::Signal),
    ];
    begins.into_iter().find(|(begin, _)| why.starts_with(begin)).map(|(_, event)| event)
}
