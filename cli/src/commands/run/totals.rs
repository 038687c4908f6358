//! The exit status and the exact totals of the command.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use polymeter_analysis::model::KernelTotals;

/// Returns the exit status as a shell does: that of the command, or 128 plus the signal that ended it.
pub(crate) fn status_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Returns the totals of the command that was waited for: getrusage(2), `RUSAGE_CHILDREN`.
#[expect(clippy::cast_precision_loss, reason = "reports have few digits")]
pub(crate) fn of_children() -> Option<KernelTotals> {
    #[expect(unsafe_code, reason = "no safe crate has getrusage")]
    // SAFETY: `rusage` consists of integers, for which all zeros is valid.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    #[expect(unsafe_code, reason = "no safe crate has getrusage")]
    // SAFETY: the kernel writes one `rusage` to the given place.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (result == 0).then(|| KernelTotals {
        user_s: seconds(used.ru_utime),
        system_s: seconds(used.ru_stime),
        peak_memory_bytes: used.ru_maxrss as f64 * 1024.0,
        page_faults: (used.ru_minflt + used.ru_majflt) as f64,
        page_faults_major: used.ru_majflt as f64,
        context_switches: (used.ru_nvcsw + used.ru_nivcsw) as f64,
    })
}
