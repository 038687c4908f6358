//! Executable memory of a job's processes, as far as it is known from records and from `/proc/PID/maps`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::modules::{ModuleId, Modules, UNKNOWN};
use super::records::{NewMapping, parse_maps};
use crate::sources::kernel_text;

/// Bound of the processes whose memory is remembered. Code of further ones has no module.
const PROCESSES_MAX: usize = 8192;

/// Bound of the executable mappings of a process: a program that makes more hides its further code.
const MAPPINGS_MAX: usize = 4096;

/// Bound of the mappings of all processes of a job: some 30 MiB. Code in further ones has no module.
const ALL_MAPPINGS_MAX: usize = 256 * 1024;

#[derive(Debug, Clone)]
struct Mapping {
    end: u64,
    offset: u64,
    module: ModuleId,
}

#[derive(Debug, Clone, Default)]
struct Space {
    mappings: Arc<BTreeMap<u64, Mapping>>,
    /// True once the mappings were read from the process, or are all known from records.
    is_whole: bool,
    is_used: bool,
}

#[derive(Debug)]
pub(super) struct Spaces {
    proc: PathBuf,
    known: HashMap<u32, Space>,
    /// Mappings of all processes, or more: those of ended processes count until they are forgotten.
    held: usize,
}

impl Spaces {
    pub(super) fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), known: HashMap::new(), held: 0 }
    }

    pub(super) fn map(&mut self, pid: u32, mapping: &NewMapping, modules: &mut Modules) {
        let module = modules.of(pid, mapping);
        let held = self.held;
        let Some(space) = self.space(pid) else { return };
        // Processes share the mappings of their parent until they change them. A new one divides another.
        let is_shared = Arc::strong_count(&space.mappings) > 1;
        let added = 2 + if is_shared { space.mappings.len() } else { 0 };
        if held + added <= ALL_MAPPINGS_MAX {
            insert(Arc::make_mut(&mut space.mappings), mapping, module);
            self.held += added;
        }
    }

    /// Records that a process executes another program: its memory is mapped anew from here on.
    pub(super) fn exec(&mut self, pid: u32) {
        if let Some(space) = self.space(pid) {
            *space = Space { is_whole: true, is_used: true, ..Space::default() };
        }
    }

    /// Records that a process was started, with the memory of its parent.
    pub(super) fn fork(&mut self, pid: u32, parent: u32) {
        if pid == parent {
            return;
        }
        let inherited = self.known.get(&parent).cloned().unwrap_or_default();
        if let Some(space) = self.space(pid) {
            *space = Space { is_used: true, ..inherited };
        }
    }

    /// Module of an address of a process, and the position there.
    pub(super) fn find(&mut self, pid: u32, address: u64, modules: &mut Modules) -> (ModuleId, u64) {
        let Some(space) = self.space(pid) else { return (UNKNOWN, 0) };
        space.is_used = true;
        if let Some(found) = found(space, address, modules) {
            return found;
        }
        if !std::mem::replace(&mut space.is_whole, true) {
            // A process of before the lease, or of before its records began.
            let maps = kernel_text::bytes(&self.proc.join(format!("{pid}/maps"))).unwrap_or_default();
            for mapping in parse_maps(&maps).take(MAPPINGS_MAX) {
                self.map(pid, &mapping, modules);
            }
            return self.known.get(&pid).and_then(|space| found(space, address, modules)).unwrap_or_default();
        }
        (UNKNOWN, 0)
    }

    /// Forgets processes that have ended and were not used since the last call.
    pub(super) fn forget_ended(&mut self) {
        let proc = &self.proc;
        self.known
            .retain(|pid, space| std::mem::take(&mut space.is_used) || proc.join(pid.to_string()).exists());
        let unique: HashMap<*const _, usize> =
            self.known.values().map(|space| (Arc::as_ptr(&space.mappings), space.mappings.len())).collect();
        self.held = unique.into_values().sum();
    }

    fn space(&mut self, pid: u32) -> Option<&mut Space> {
        if self.known.len() >= PROCESSES_MAX && !self.known.contains_key(&pid) {
            return None;
        }
        Some(self.known.entry(pid).or_default())
    }
}

fn found(space: &Space, address: u64, modules: &Modules) -> Option<(ModuleId, u64)> {
    let (start, mapping) = space.mappings.range(..=address).next_back()?;
    (address < mapping.end)
        .then(|| (mapping.module, modules.position(mapping.module, address, *start, mapping.offset)))
}

fn insert(mappings: &mut BTreeMap<u64, Mapping>, new: &NewMapping, module: ModuleId) {
    if new.start >= new.end {
        return;
    }
    let before = mappings.range(..new.start).next_back().map(|(start, mapping)| (*start, mapping.clone()));
    if let Some((start, before)) = before.filter(|(_, before)| before.end > new.start) {
        if before.end > new.end {
            let offset = before.offset.wrapping_add(new.end - start);
            mappings.insert(new.end, Mapping { end: before.end, offset, module: before.module });
        }
        mappings.insert(start, Mapping { end: new.start, ..before });
    }
    let covered: Vec<u64> = mappings.range(new.start..new.end).map(|(start, _)| *start).collect();
    for start in covered {
        if let Some(old) = mappings.remove(&start).filter(|old| old.end > new.end) {
            let offset = old.offset.wrapping_add(new.end - start);
            mappings.insert(new.end, Mapping { end: old.end, offset, module: old.module });
        }
    }
    if mappings.len() < MAPPINGS_MAX {
        mappings.insert(new.start, Mapping { end: new.end, offset: new.offset, module });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, path: &str) -> NewMapping {
        let inode = u64::from(path.bytes().last().unwrap());
        NewMapping { start, end, offset: 0x100, file: (0, 1, inode), path: path.into() }
    }

    fn found(spaces: &mut Spaces, modules: &mut Modules, pid: u32, address: u64) -> (String, u64) {
        let (module, position) = spaces.find(pid, address, modules);
        (modules.name(module).map_or_else(String::new, |name| name.as_str().to_owned()), position)
    }

    #[test]
    fn memory_is_that_of_the_newest_mapping() {
        let proc = tempfile::tempdir().unwrap();
        let (mut spaces, mut modules) = (Spaces::new(proc.path()), Modules::new(proc.path()));
        for (start, end, path) in
            [(0x1000, 0x5000, "/lib/a"), (0x2000, 0x3000, "/lib/b"), (0x4000, 0x6000, "/lib/c")]
        {
            spaces.map(7, &mapping(start, end, path), &mut modules);
        }
        spaces.fork(8, 7);
        spaces.exec(7);
        spaces.map(7, &mapping(0x1000, 0x2000, "/bin/d"), &mut modules);
        let mut at = |pid, address| found(&mut spaces, &mut modules, pid, address);
        let named = |name: &str, position| (name.to_owned(), position);
        assert_eq!(at(8, 0x1010), named("a", 0x110));
        assert_eq!(at(8, 0x2fff), named("b", 0x10ff));
        assert_eq!(at(8, 0x3001), named("a", 0x2101), "the rest of the first, in its place");
        assert_eq!(at(8, 0x4000), named("c", 0x100));
        assert_eq!(at(8, 0x6000), named("", 0));
        assert_eq!(at(7, 0x1000), named("d", 0x100));
        assert_eq!(at(7, 0x4000), named("", 0), "an exec leaves nothing");
        spaces.forget_ended();
        assert_eq!(spaces.known.len(), 2, "both were used");
        spaces.forget_ended();
        assert!(spaces.known.is_empty());
    }

    /// A program with many mappings, whose children each map another file.
    #[test]
    fn the_mappings_of_many_processes_are_bounded() {
        let proc = tempfile::tempdir().unwrap();
        let (mut spaces, mut modules) = (Spaces::new(proc.path()), Modules::new(proc.path()));
        let at =
            |number: usize| mapping(0x1000 * (number as u64 + 1), 0x1000 * (number as u64 + 2), "/lib/a");
        (0..MAPPINGS_MAX - 1).for_each(|number| spaces.map(1, &at(number), &mut modules));
        for pid in 2..1000 {
            spaces.fork(pid, 1);
            spaces.map(pid, &at(MAPPINGS_MAX), &mut modules);
        }
        let held = |spaces: &Spaces| {
            let lens: HashMap<_, _> =
                spaces.known.values().map(|of| (Arc::as_ptr(&of.mappings), of.mappings.len())).collect();
            lens.values().sum::<usize>()
        };
        assert!((ALL_MAPPINGS_MAX / 2..=ALL_MAPPINGS_MAX).contains(&held(&spaces)), "{}", held(&spaces));
        spaces.forget_ended();
        assert_eq!(spaces.held, held(&spaces));
        spaces.forget_ended();
        assert_eq!((spaces.held, spaces.known.len()), (0, 0));
    }

    #[test]
    fn processes_without_records_are_read_once() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("9")).unwrap();
        let write = |text: &str| std::fs::write(proc.path().join("9/maps"), text).unwrap();
        write("1000-2000 r-xp 00000000 08:01 5 /bin/e\n");
        let (mut spaces, mut modules) = (Spaces::new(proc.path()), Modules::new(proc.path()));
        assert_eq!(found(&mut spaces, &mut modules, 9, 0x1000).0, "e");
        write("3000-4000 r-xp 00000000 08:01 6 /bin/f\n");
        assert_eq!(found(&mut spaces, &mut modules, 9, 0x3000).0, "");
        assert_eq!(found(&mut spaces, &mut modules, 99, 0x3000).0, "", "it has ended");
    }
}
