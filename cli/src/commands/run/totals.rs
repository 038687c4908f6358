//! Exit status and exact totals of the command.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use polymeter_analysis::command_totals::CommandTotals;
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::Identifier;
use polymeter_service::clock;
use procfs::process::Process;

/// Status as in a shell: 128 plus the signal that ended the command, else its status.
pub(crate) fn status_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

pub(super) fn facts(code: Option<i32>, signal: Option<i32>) -> JobFacts {
    let state = if code == Some(0) { "COMPLETED" } else { "FAILED" };
    let number = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok());
    JobFacts {
        state: Identifier::try_from(state).ok(),
        exit_code: number(code),
        exit_signal: number(signal),
        ..JobFacts::default()
    }
}

/// What the process of the command used before it executed its program.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    peak_memory_bytes: u64,
    page_faults: u64,
    context_switches: u64,
}

impl Before {
    /// Reads what a held process has used; 0 for what cannot be read.
    pub(super) fn read(pid: u32) -> Self {
        let Some(process) = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()) else {
            return Self::default();
        };
        let status = process.status().ok();
        let switches = status
            .as_ref()
            .and_then(|status| Some(status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?));
        Self {
            peak_memory_bytes: status.and_then(|status| status.vmhwm).unwrap_or(0) * 1024,
            page_faults: process.stat().map_or(0, |stat| stat.minflt + stat.majflt),
            context_switches: switches.unwrap_or(0),
        }
    }
}

/// Waits for the end of the command. Returns its status, and the totals of this process and of those that it
/// waited for: no other child of this process counts, such as one from before it executed Polymeter.
#[expect(clippy::cast_precision_loss, reason = "reports have few digits")]
pub(super) fn reap(pid: i32, before: Before) -> io::Result<(ExitStatus, CommandTotals)> {
    /// Memory that the process may still touch before it executes its program.
    const LATE_BYTES: f64 = 1024.0 * 1024.0;
    let mut status = 0;
    #[expect(unsafe_code, reason = "no safe crate has wait4")]
    // SAFETY: `rusage` consists of integers, for which all zeros is valid.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        #[expect(unsafe_code, reason = "no safe crate has wait4")]
        // SAFETY: the kernel writes a status and one `rusage` to the given places.
        let result = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) };
        if result == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let nanoseconds = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    let peak_bytes = used.ru_maxrss as f64 * 1024.0;
    let without = |total: i64, before: u64| (total as f64 - before as f64).max(0.0);
    let totals = CommandTotals {
        user_ns: nanoseconds(used.ru_utime),
        system_ns: nanoseconds(used.ru_stime),
        // The kernel keeps the peak of a process when it executes a program.
        peak_memory_bytes: (peak_bytes > before.peak_memory_bytes as f64 + LATE_BYTES).then_some(peak_bytes),
        page_faults: without(used.ru_minflt + used.ru_majflt, before.page_faults),
        page_faults_major: used.ru_majflt as f64,
        context_switches: without(used.ru_nvcsw + used.ru_nivcsw, before.context_switches),
        measuring_ns: clock::process_cpu_ns() as f64,
    };
    Ok((ExitStatus::from_raw(status), totals))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[expect(clippy::zombie_processes, reason = "`reap` waits for it")]
    fn end_after(script: &str, before: Before) -> (ExitStatus, CommandTotals) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        reap(child.id().try_into().unwrap(), before).unwrap()
    }

    fn end(script: &str) -> (ExitStatus, CommandTotals) {
        end_after(script, Before::default())
    }

    const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

    #[test]
    fn no_other_child_of_this_process_counts() {
        let (_, busy) = end(BUSY);
        let (status, idle) = end("true");
        assert_eq!(status_code(status), 0);
        assert!(idle.user_ns + idle.system_ns < (busy.user_ns + busy.system_ns) / 2.0, "{idle:?} {busy:?}");
        let (_, of_children) = end(&format!("({BUSY}); true"));
        assert!(of_children.user_ns > busy.user_ns / 2.0, "{of_children:?} {busy:?}");
    }

    #[test]
    fn the_outcome_is_that_of_the_command() {
        let outcome = |script| {
            let (status, _) = end(script);
            let JobFacts { state, exit_code, exit_signal, .. } = facts(status.code(), status.signal());
            (state.unwrap().to_string(), exit_code, exit_signal, status_code(status))
        };
        assert_eq!(outcome("true"), ("COMPLETED".to_owned(), Some(0), None, 0));
        assert_eq!(outcome("exit 77"), ("FAILED".to_owned(), Some(77), None, 77));
        assert_eq!(outcome("kill -KILL $$"), ("FAILED".to_owned(), None, Some(9), 137));
    }

    #[test]
    fn what_was_used_before_does_not_count() {
        let much = Before { peak_memory_bytes: u64::MAX, page_faults: u64::MAX, context_switches: u64::MAX };
        let (_, totals) = end_after("exit 3", much);
        let CommandTotals { peak_memory_bytes, page_faults, context_switches, .. } = totals;
        assert_eq!((peak_memory_bytes, page_faults, context_switches), (None, 0.0, 0.0));
        let own = Before::read(std::process::id());
        assert!(own.peak_memory_bytes > 0 && own.page_faults > 0, "{own:?}");
    }
}
