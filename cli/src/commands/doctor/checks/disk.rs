//! Disk of the store: its free space, and the days until it is full.

use std::path::Path;

use polymeter_proto::units;
use polymeter_store::Storage;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;
use crate::disk::{Disk, disk};

const LITTLE_BYTES: u64 = 1 << 30;

/// A problem, and a warning: days until the disk is full.
const DAYS: (u32, u32) = (7, 30);

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    let (space, days) = match (machine.store(), config.store.file()) {
        (Ok(state), _) => (state.disk.clone().map_err(|reason| reason.to_string()), state.days_until_full),
        // The collector has not created it yet, or it cannot be read: its disk can be examined all the same.
        (Err(_), Some(path)) => {
            let directory = path.ancestors().skip(1).map(of_relative).find(|directory| directory.is_dir());
            let directory = directory.ok_or_else(|| "its directory does not exist".to_owned());
            (directory.and_then(|path| disk(path).map_err(|reason| reason.to_string())), None)
        }
        (Err(reason), None) => (Err(reason.to_string()), None),
    };
    match space {
        Ok(space) => judge(space, days, findings),
        Err(reason) => findings.not_checked(format!("the disk of the store: {reason}")),
    }
}

/// Directory of a relative path without a directory.
fn of_relative(directory: &Path) -> &Path {
    if directory == Path::new("") { Path::new(".") } else { directory }
}

fn judge(space: Disk, days: Option<u32>, findings: &mut Findings) {
    let until = days.filter(|days| *days > 0);
    let until = until
        .map_or_else(String::new, |days| format!(", full in {} at its growth", units::counted(days, "day")));
    let text = format!("{} of {} free{until}", units::bytes(space.free_bytes), units::bytes(space.bytes));
    let remedy = "enlarge the disk, or shorten [retention] and remove now: polymeter store prune";
    if space.free_bytes < Storage::DISK_FULL_BYTES || days.is_some_and(|days| days <= DAYS.0) {
        findings.problem(format!("the disk of the store is full or will soon be: {text}"), remedy);
    } else if space.free_bytes < LITTLE_BYTES || days.is_some_and(|days| days <= DAYS.1) {
        findings.warning(format!("the disk of the store will be full: {text}"), remedy);
    } else {
        findings.ok(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;

    fn level(free_bytes: u64, days: Option<u32>) -> Level {
        let mut findings = Findings::new("disk", Role::Collector);
        judge(Disk { free_bytes, bytes: 1 << 40 }, days, &mut findings);
        findings.into_list()[0].level
    }

    #[test]
    fn a_disk_is_judged_by_its_growth_or_its_space() {
        assert_eq!((level(1 << 20, None), level(1 << 39, Some(3))), (Level::Problem, Level::Problem));
        assert_eq!((level(1 << 28, None), level(1 << 39, Some(30))), (Level::Warning, Level::Warning));
        assert_eq!((level(1 << 39, None), level(1 << 39, Some(90))), (Level::Ok, Level::Ok));
    }
}
