//! Samples of an interval: first by addresses, then by functions.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::period::Period;

use super::files::Budget;
use super::modules::{KERNEL, ModuleId, Modules, Name};
use super::ranks::Ranks;
use super::records::{DEPTH, Frame, Record, Timed};
use super::registers::UserState;
use super::rings::What;
use super::spaces::Spaces;
use super::waits::Waits;
use crate::sources::stack_profile::{Function, StackProfile};

/// Bound of the different stacks of addresses of an interval. Samples of further ones are lost.
const STACKS_MAX: usize = 64 * 1024;

/// Bound of the addresses of all stacks together: 16 MiB.
const ADDRESSES_MAX: usize = 1024 * 1024;

/// Places of a module whose functions are searched for together: each search takes up to 4 KiB for each.
const SEARCHED_MAX: usize = 4096;

/// Bound of the names of the functions of an interval. Further functions have none.
const NAMES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// CPU time after which no further table is searched in one read. The next reads find the rest.
const SYMBOLS_NS: u64 = 200_000_000;

/// CPU time after which no further sample is unwound in one read: the callers of the rest are missing.
const UNWINDING_NS: u64 = 200_000_000;

/// Functions of the kernel by which a thread leaves its CPU, below those that say why.
const SCHEDULER: [&str; 8] = [
    "__schedule",
    "schedule",
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "io_schedule",
    "io_schedule_timeout",
];

type Place = (ModuleId, u64);

/// Samples since the last profile, and what is known of the processes.
#[derive(Debug)]
pub(super) struct Collected {
    spaces: Spaces,
    modules: Modules,
    waits: Option<Waits>,
    ranks: Ranks,
    /// Number of samples by process and places, the innermost first.
    stacks: HashMap<(u32, Box<[Place]>), u64>,
    addresses: usize,
    lost: u64,
    throttled: u64,
    cut: u64,
}

impl Collected {
    pub(super) fn new(proc: &Path, what: What) -> Self {
        Self {
            spaces: Spaces::new(proc),
            modules: Modules::new(proc),
            waits: (what == What::Waits).then(Waits::default),
            ranks: Ranks::new(proc),
            stacks: HashMap::new(),
            addresses: 0,
            lost: 0,
            throttled: 0,
            cut: 0,
        }
    }

    /// Takes the records of all CPUs, and orders them by time. With these, all of before `until_ns` have been
    /// taken.
    pub(super) fn take(&mut self, mut records: Vec<Timed>, period: Period, until_ns: u64) {
        if let Some(waits) = &mut self.waits {
            records = waits.samples(records, period, until_ns);
        }
        records.sort_by_key(|timed| timed.time_ns);
        let budget = Budget::of(UNWINDING_NS);
        for Timed { record, .. } in records {
            match record {
                Record::Sample { pid, mut frames, mut is_cut, user, count, .. } => {
                    if let Some(user) = user {
                        is_cut |= self.unwind(pid, &user, &mut frames, budget);
                    }
                    self.sample(pid, &frames, is_cut, count);
                }
                Record::Mapped { pid, mapping } => self.spaces.map(pid, &mapping, &mut self.modules),
                Record::Exec { pid } => {
                    self.spaces.exec(pid);
                    self.ranks.exec(pid);
                }
                Record::Fork { pid, parent, .. } => self.spaces.fork(pid, parent),
                Record::Exit { .. } | Record::In { .. } | Record::Out { .. } | Record::Blind { .. } => {}
                Record::Lost(lost) => self.lost += lost,
                Record::Throttled => self.throttled += 1,
            }
        }
    }

    /// Appends the functions of user mode to those of the kernel. Returns true if outermost ones are missing.
    fn unwind(&mut self, pid: u32, user: &UserState, frames: &mut Vec<Frame>, budget: Budget) -> bool {
        if budget.is_spent() {
            frames.push(Frame { address: user.registers.address, is_kernel: false });
            return true;
        }
        user.unwind(frames, DEPTH.into(), |address| {
            let (module, position) = self.spaces.find(pid, address, &mut self.modules);
            self.modules.rule(module, position, budget)
        })
    }

    /// Counts the waits that last, up to the last records.
    fn take_lasting_waits(&mut self, period: Period) {
        let Some(mut waits) = self.waits.take() else { return };
        let budget = Budget::of(UNWINDING_NS);
        for (wait, count) in waits.lasting(period) {
            if count == 0 {
                continue;
            }
            let Some(stack) = &mut wait.stack else {
                self.lost += count;
                continue;
            };
            if let Some(user) = stack.user.take() {
                stack.is_cut |= self.unwind(stack.pid, &user, &mut stack.frames, budget);
            }
            self.sample(stack.pid, &stack.frames, stack.is_cut, count);
        }
        self.waits = Some(waits);
    }

    fn sample(&mut self, pid: u32, frames: &[Frame], is_cut: bool, count: u64) {
        self.cut += if is_cut { count } else { 0 };
        let mut places = Vec::with_capacity(frames.len());
        for (number, frame) in frames.iter().enumerate() {
            // A caller's address is where it continues: the call is before it, perhaps in another function.
            let address = if number == 0 { frame.address } else { frame.address.wrapping_sub(1) };
            let place = if frame.is_kernel {
                (KERNEL, address)
            } else {
                self.spaces.find(pid, address, &mut self.modules)
            };
            places.push(place);
        }
        let (added, is_full) = (places.len(), self.stacks.len() >= STACKS_MAX);
        let key = (pid, places.into_boxed_slice());
        if let Some(counted) = self.stacks.get_mut(&key) {
            *counted += count;
        } else if is_full || self.addresses + added > ADDRESSES_MAX {
            self.lost += count;
        } else {
            self.addresses += added;
            self.stacks.insert(key, count);
        }
    }

    pub(super) fn profile(&mut self, span_us: (i64, i64), period: Period) -> StackProfile {
        self.take_lasting_waits(period);
        let stacks = std::mem::take(&mut self.stacks);
        self.addresses = 0;
        self.spaces.forget_ended();
        let names = self.names(stacks.keys().flat_map(|(_, places)| places.iter().copied()).collect());
        let mut tree = Tree::default();
        let mut unresolved = 0;
        for ((pid, places), count) in stacks {
            let mut stack = None;
            let places = places.get(self.scheduler_places(&places, &names)..).unwrap_or_default();
            for place in places.iter().rev() {
                let name = names.get(place).cloned().flatten();
                stack = Some(tree.stack(stack, place.0, name, &self.modules));
            }
            let Some(stack) = stack else { continue };
            let is_resolved =
                places.first().is_some_and(|place| names.get(place).is_some_and(Option::is_some));
            unresolved += if is_resolved { 0 } else { count };
            *tree.counts.entry((pid, stack)).or_default() += count;
        }
        let mut counts: Vec<_> =
            tree.counts.into_iter().map(|((pid, stack), count)| (pid, stack, count)).collect();
        counts.sort_unstable();
        let ranks = self.ranks.of_new(&counts.iter().map(|(pid, ..)| *pid).collect());
        StackProfile {
            span_us,
            period: Some(period),
            functions: tree.functions,
            stacks: tree.stacks,
            counts,
            ranks,
            lost: std::mem::take(&mut self.lost),
            throttled: std::mem::take(&mut self.throttled),
            cut: std::mem::take(&mut self.cut),
            unresolved,
        }
    }

    /// Number of the innermost places that are the scheduler's: where all threads wait.
    fn scheduler_places(&self, places: &[Place], names: &HashMap<Place, Name>) -> usize {
        if self.waits.is_none() {
            return 0;
        }
        let of_scheduler = places.iter().take_while(|place| {
            let name = names.get(place).and_then(Option::as_ref);
            place.0 == KERNEL && name.is_some_and(|name| SCHEDULER.contains(&name.as_str()))
        });
        let number = of_scheduler.count();
        // A thread of the kernel has nothing else.
        number.min(places.len().saturating_sub(1))
    }

    fn names(&mut self, places: BTreeSet<Place>) -> HashMap<Place, Name> {
        let budget = Budget::of(SYMBOLS_NS);
        let places: Vec<Place> = places.into_iter().collect();
        let (mut names, mut names_bytes) = (HashMap::with_capacity(places.len()), 0);
        // The kernel's table is the largest, so that it comes last.
        let mut modules: Vec<&[Place]> = places.chunk_by(|a, b| a.0 == b.0).collect();
        modules.sort_by_key(|of_module| of_module.first().is_some_and(|place| place.0 == KERNEL));
        for of_module in modules {
            let Some((module, _)) = of_module.first() else { continue };
            for places in of_module.chunks(SEARCHED_MAX) {
                let positions: Vec<u64> = places.iter().map(|(_, position)| *position).collect();
                let found = if names_bytes < NAMES_BYTES_MAX {
                    self.modules.functions(*module, &positions, budget)
                } else {
                    vec![None; positions.len()]
                };
                names_bytes += names_in(&found);
                names.extend(places.iter().copied().zip(found));
            }
        }
        names
    }
}

/// Bytes of the names of functions in the order of their places, each function once.
fn names_in(found: &[Name]) -> usize {
    let mut bytes = 0;
    let mut last = None;
    for name in found.iter().flatten() {
        let this = Some(Arc::as_ptr(name));
        bytes += if this == last { 0 } else { name.as_str().len() };
        last = this;
    }
    bytes
}

/// A profile under construction.
#[derive(Debug, Default)]
struct Tree {
    functions: Vec<Function>,
    function_numbers: HashMap<(ModuleId, Name), u32>,
    stacks: Vec<(Option<u32>, u32)>,
    stack_numbers: HashMap<(Option<u32>, u32), u32>,
    counts: HashMap<(u32, u32), u64>,
}

impl Tree {
    /// Number of the stack of a function that is called from another stack.
    fn stack(&mut self, caller: Option<u32>, module: ModuleId, name: Name, modules: &Modules) -> u32 {
        let function = *self.function_numbers.entry((module, name.clone())).or_insert_with(|| {
            self.functions.push(Function { name, module: modules.name(module).cloned() });
            number(self.functions.len())
        });
        *self.stack_numbers.entry((caller, function)).or_insert_with(|| {
            self.stacks.push((caller, function));
            number(self.stacks.len())
        })
    }
}

/// Number of the last of `len` items, at most [`ADDRESSES_MAX`].
fn number(len: usize) -> u32 {
    u32::try_from(len - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::records::NewMapping;
    use super::*;

    const PERIOD: Period = Period::TEN_MILLISECONDS;

    fn sample(time_ns: u64, pid: u32, addresses: &[u64]) -> Timed {
        let frames = addresses
            .iter()
            .map(|address| Frame { address: *address, is_kernel: *address >= 1 << 63 })
            .collect();
        let sample = Record::Sample { pid, tid: pid, frames, is_cut: false, user: None, count: 1 };
        Timed { time_ns, record: sample }
    }

    fn mapped(time_ns: u64, pid: u32, start: u64, path: &str) -> Timed {
        let file = (0, 1, u64::from(path.bytes().last().unwrap()));
        let mapping = NewMapping { start, end: start + 0x1000, offset: 0, file, path: path.into() };
        Timed { time_ns, record: Record::Mapped { pid, mapping } }
    }

    #[test]
    fn records_count_in_the_order_of_their_times() {
        let proc = tempfile::tempdir().unwrap();
        let mut collected = Collected::new(proc.path(), What::Cpu);
        let exec = Timed { time_ns: 30, record: Record::Exec { pid: 7 } };
        let lost = Timed { time_ns: 50, record: Record::Lost(3) };
        collected.take(
            vec![
                sample(40, 7, &[0x2010, 0x1010]),
                mapped(35, 7, 0x2000, "/bin/b"),
                lost,
                exec,
                sample(20, 7, &[0x1010]),
                mapped(10, 7, 0x1000, "/bin/a"),
            ],
            PERIOD,
            0,
        );
        collected.take(vec![sample(60, 7, &[0x2020, 0x1010]), sample(61, 8, &[u64::MAX - 9999])], PERIOD, 0);
        let profile = collected.profile((1, 2), PERIOD);
        let modules =
            |number: u32| profile.functions[number as usize].module.as_ref().map(ToString::to_string);
        let text = |stack: u32| {
            let (mut next, mut text) = (Some(stack), Vec::new());
            while let Some(stack) = next {
                let (caller, function) = profile.stacks[stack as usize];
                assert!(caller.is_none_or(|caller| caller < stack));
                text.push(modules(function).unwrap_or_else(|| "?".to_owned()));
                next = caller;
            }
            text.join(" < ")
        };
        let mut found: Vec<_> =
            profile.counts.iter().map(|(pid, stack, count)| (*pid, text(*stack), *count)).collect();
        found.sort();
        let row = |pid, text: &str, count| (pid, text.to_owned(), count);
        assert_eq!(found, [row(7, "a", 1), row(7, "b < ?", 2), row(8, "[kernel]", 1)]);
        assert_eq!((profile.samples(), profile.lost, profile.unresolved), (4, 3, 4));
        assert_eq!(collected.profile((2, 3), Period::SECOND).samples(), 0, "each sample counts once");
    }

    #[test]
    fn samples_beyond_the_bound_are_lost_and_counted() {
        let proc = tempfile::tempdir().unwrap();
        let mut collected = Collected::new(proc.path(), What::Cpu);
        let all = u64::try_from(STACKS_MAX).unwrap() + 10;
        let address = |number| (1 << 63) + number;
        collected.take((0..all).map(|number| sample(number, 7, &[address(number)])).collect(), PERIOD, 0);
        collected.take(vec![sample(0, 7, &[address(1)])], PERIOD, 0);
        let profile = collected.profile((1, 2), Period::SECOND);
        assert_eq!((profile.samples(), profile.lost), (all - 10 + 1, 10));
    }
}
