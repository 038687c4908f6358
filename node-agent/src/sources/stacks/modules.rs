//! Modules of a job's processes: files, the kernel, and code without a file, with their functions.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use polymeter_proto::series::Identifier;
use polymeter_proto::stacks::FunctionName;

use super::demangle::function_name;
use super::eh_frame::{self, Rule};
use super::elf::Tables;
use super::files::{Budget, FileId, Mapped, PerfMap, Reader, open_mapped};
use super::records::NewMapping;
use super::search::Range;
use super::text_symbols::{self, Form};
use crate::sources::lock::lock;

/// Bound of the modules of a job. Code of further ones has no module.
const MODULES_MAX: usize = 4096;

/// Bound of the ranges of a module that are remembered: some 10 MiB of all modules of a large job together.
const RANGES_MAX: usize = 64 * 1024;

/// Bound of the addresses of a file whose rules are remembered: 2 MiB.
const RULES_MAX: usize = 16 * 1024;

/// Bound of what is remembered of all modules of a job together: names and rules are a user's, and may be
/// long. Beyond it, all are forgotten and searched again.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bound of the files of a job that are open. Code of further ones has no names.
const FILES_MAX: usize = 512;

/// Bytes of an entry of a map, about.
const ENTRY_BYTES: usize = 64;

pub(super) type ModuleId = u32;

/// Module of addresses that are not known.
pub(super) const UNKNOWN: ModuleId = 0;
pub(super) const KERNEL: ModuleId = 1;

pub(super) type Name = Option<Arc<FunctionName>>;

/// Functions by their ranges of addresses: beginning, end, and name.
type Ranges = BTreeMap<u64, (u64, Name)>;

/// Functions of a file, shared by all jobs that map it, for as long as any of them is sampled.
#[derive(Debug)]
struct SharedFile {
    file: File,
    tables: Tables,
    ranges: Mutex<Ranges>,
    /// How callers are found, by the address in the tables.
    rules: Mutex<HashMap<u64, Option<Arc<Rule>>>>,
}

static FILES: Mutex<BTreeMap<FileId, Weak<SharedFile>>> = Mutex::new(BTreeMap::new());

static KERNEL_RANGES: Mutex<Weak<Mutex<Ranges>>> = Mutex::new(Weak::new());

/// What gives the functions of a module.
#[derive(Debug)]
enum Symbols {
    /// A file that is not open yet.
    Unopened {
        mapping: NewMapping,
        pid: u32,
    },
    File(Arc<SharedFile>),
    Kernel(Arc<Mutex<Ranges>>),
    /// Code that a process has made, with the perf map as it was read last.
    Made {
        pid: u32,
        read: Option<FileId>,
        ranges: Ranges,
    },
    Nothing,
}

#[derive(Debug)]
struct Module {
    name: Option<Identifier>,
    symbols: Symbols,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    File((u32, u32, u64), Vec<u8>),
    Made(u32),
    Named(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Modules {
    proc: PathBuf,
    ids: HashMap<Key, ModuleId>,
    modules: Vec<Module>,
    /// Number of files that were opened.
    files: usize,
    /// User of a process of the job, for those that have ended.
    reader: Option<Reader>,
    /// Bytes of names and rules that this job has added since they were forgotten.
    held_bytes: usize,
}

impl Modules {
    pub(super) fn new(proc: &Path) -> Self {
        let mut known = lock(&KERNEL_RANGES);
        let kernel = known.upgrade().unwrap_or_default();
        *known = Arc::downgrade(&kernel);
        let unknown = Module { name: None, symbols: Symbols::Nothing };
        let kernel = Module { name: Identifier::escaped(b"[kernel]"), symbols: Symbols::Kernel(kernel) };
        Self {
            proc: proc.to_owned(),
            ids: HashMap::new(),
            modules: vec![unknown, kernel],
            files: 0,
            reader: None,
            held_bytes: 0,
        }
    }

    pub(super) fn of(&mut self, pid: u32, mapping: &NewMapping) -> ModuleId {
        let has_file = mapping.file.2 != 0 && mapping.path.starts_with(b"/");
        // The kernel marks code without a file as `//anon`; /dev/zero and memfd have an inode of no file.
        let key = match mapping.path.as_slice() {
            path if has_file && !path.starts_with(b"/memfd:") && path != b"/dev/zero" => {
                Key::File(mapping.file, path.to_vec())
            }
            b"[vdso]" | b"[vsyscall]" => Key::Named(mapping.path.clone()),
            _ => Key::Made(pid),
        };
        if let Some(id) = self.ids.get(&key) {
            let id = *id;
            // The process that mapped it first may have ended.
            if let Some(Module { symbols: symbols @ Symbols::Unopened { .. }, .. }) =
                self.modules.get_mut(id as usize)
            {
                *symbols = Symbols::Unopened { mapping: mapping.clone(), pid };
            }
            return id;
        }
        if self.modules.len() >= MODULES_MAX {
            return UNKNOWN;
        }
        let (name, symbols) = match &key {
            Key::File(_, path) => {
                let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let base = base.strip_suffix(b" (deleted)").unwrap_or(base);
                (base.to_vec(), Symbols::Unopened { mapping: mapping.clone(), pid })
            }
            Key::Made(pid) => {
                (b"[jit]".to_vec(), Symbols::Made { pid: *pid, read: None, ranges: Ranges::new() })
            }
            Key::Named(name) => (name.clone(), Symbols::Nothing),
        };
        let id = ModuleId::try_from(self.modules.len()).unwrap_or(UNKNOWN);
        self.modules.push(Module { name: Identifier::escaped(&name), symbols });
        self.ids.insert(key, id);
        id
    }

    /// Address that identifies code of a module: in a file the position, else the address itself.
    pub(super) fn position(&self, module: ModuleId, address: u64, start: u64, offset: u64) -> u64 {
        match self.modules.get(module as usize).map(|module| &module.symbols) {
            Some(Symbols::Unopened { .. } | Symbols::File(_)) => {
                address.wrapping_sub(start).wrapping_add(offset)
            }
            Some(Symbols::Kernel(_) | Symbols::Made { .. } | Symbols::Nothing) | None => address,
        }
    }

    pub(super) fn name(&self, module: ModuleId) -> Option<&Identifier> {
        self.modules.get(module as usize)?.name.as_ref()
    }

    /// Rule by which the caller is found from a position of a module. Once the budget is spent, one that is
    /// not known yet is none this time.
    pub(super) fn rule(&mut self, module: ModuleId, position: u64, budget: Budget) -> Option<Arc<Rule>> {
        let Some(Symbols::File(shared)) = self.opened(module) else { return None };
        let address = shared.tables.address(position)?;
        let mut rules = lock(&shared.rules);
        if let Some(known) = rules.get(&address) {
            return known.clone();
        }
        if budget.is_spent() {
            return None;
        }
        if rules.len() >= RULES_MAX {
            rules.clear();
        }
        let rule = eh_frame::rule(&shared.file, &shared.tables, address).map(Arc::new);
        rules.insert(address, rule.clone());
        drop(rules);
        self.hold(ENTRY_BYTES + rule.as_deref().map_or(0, Rule::bytes));
        rule
    }

    /// Counts what is remembered anew, and forgets all where it is too much.
    fn hold(&mut self, bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        if self.held_bytes <= HELD_BYTES_MAX {
            return;
        }
        self.held_bytes = 0;
        for module in &mut self.modules {
            match &mut module.symbols {
                Symbols::File(shared) => {
                    lock(&shared.ranges).clear();
                    lock(&shared.rules).clear();
                }
                Symbols::Made { ranges, .. } => ranges.clear(),
                Symbols::Unopened { .. } | Symbols::Kernel(_) | Symbols::Nothing => {}
            }
        }
    }

    fn opened(&mut self, module: ModuleId) -> Option<&mut Symbols> {
        let symbols = &mut self.modules.get_mut(module as usize)?.symbols;
        if let Symbols::Unopened { mapping, pid } = symbols {
            let of_process = Reader::of(&self.proc, *pid);
            let reader = of_process.as_ref().or(self.reader.as_ref());
            let has_room = self.files < FILES_MAX;
            let found = if has_room { shared(&self.proc, mapping, *pid, reader) } else { None };
            self.files += usize::from(found.is_some());
            *symbols = found.map_or(Symbols::Nothing, Symbols::File);
            self.reader = of_process.or(self.reader.take());
        }
        Some(symbols)
    }

    /// Finds the functions at some positions of a module, which are in order. Once the budget is spent,
    /// unknown ones stay unknown this time.
    pub(super) fn functions(&mut self, module: ModuleId, positions: &[u64], budget: Budget) -> Vec<Name> {
        let (names, added_bytes) = self.looked_up(module, positions, budget);
        self.hold(added_bytes);
        names
    }

    /// Names at some positions, and the bytes that were added to what is remembered.
    fn looked_up(&mut self, module: ModuleId, positions: &[u64], budget: Budget) -> (Vec<Name>, usize) {
        let proc = self.proc.clone();
        let Some(symbols) = self.opened(module) else { return (vec![None; positions.len()], 0) };
        match symbols {
            Symbols::File(shared) => {
                let mut ranges = lock(&shared.ranges);
                let addresses: Vec<u64> = positions
                    .iter()
                    .map(|position| shared.tables.address(*position).unwrap_or(u64::MAX))
                    .collect();
                lookup(&mut ranges, &addresses, budget, |wanted| shared.tables.search(&shared.file, wanted))
            }
            Symbols::Kernel(ranges) => {
                let mut ranges = lock(ranges);
                lookup(&mut ranges, positions, budget, |wanted| {
                    // Without the right to see it, all addresses are unknown.
                    let Ok(text) = File::open(proc.join("kallsyms")) else { return Vec::new() };
                    text_symbols::search(Form::Kernel, BufReader::new(text), wanted)
                })
            }
            Symbols::Made { pid, read, ranges } => {
                let map = PerfMap::open(&proc, *pid);
                let found = map.as_ref().map(|map| map.id);
                // Code that was made anew may be where other code was.
                if found.is_some() && *read != found && !budget.is_spent() {
                    ranges.clear();
                    *read = found;
                }
                let map = map.filter(|_| *read == found);
                lookup(ranges, positions, budget, |wanted| {
                    map.map(|map| text_symbols::search(Form::PerfMap, map.into_text(), wanted))
                        .unwrap_or_default()
                })
            }
            Symbols::Unopened { .. } | Symbols::Nothing => (vec![None; positions.len()], 0),
        }
    }
}

fn shared(proc: &Path, mapping: &NewMapping, pid: u32, reader: Option<&Reader>) -> Option<Arc<SharedFile>> {
    let mapped = Mapped { pid, range: (mapping.start, mapping.end), file: mapping.file, path: &mapping.path };
    let (file, id) = open_mapped(proc, mapped, reader)?;
    let mut files = lock(&FILES);
    if let Some(known) = files.get(&id).and_then(Weak::upgrade) {
        return Some(known);
    }
    let (tables, ranges, rules) = (Tables::read(&file)?, Mutex::default(), Mutex::default());
    let shared = Arc::new(SharedFile { file, tables, ranges, rules });
    files.retain(|_, file| file.strong_count() > 0);
    files.insert(id, Arc::downgrade(&shared));
    Some(shared)
}

fn known(ranges: &Ranges, address: u64) -> Option<&Name> {
    let (_, (end, name)) = ranges.range(..=address).next_back()?;
    (address < *end).then_some(name)
}

/// True for an address to be searched for. The last one stands for none.
fn is_unknown(ranges: &Ranges, address: u64) -> bool {
    address < u64::MAX && known(ranges, address).is_none()
}

/// Functions at some addresses, and the bytes that were added to `ranges`. Addresses in no known range are
/// searched for together.
fn lookup(
    ranges: &mut Ranges,
    addresses: &[u64],
    budget: Budget,
    search: impl FnOnce(&[u64]) -> Vec<Range<Vec<u8>>>,
) -> (Vec<Name>, usize) {
    let mut added_bytes = 0;
    let mut wanted: Vec<u64> =
        addresses.iter().copied().filter(|address| is_unknown(ranges, *address)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if !wanted.is_empty() && !budget.is_spent() {
        if ranges.len() + wanted.len() > RANGES_MAX {
            ranges.clear();
        }
        for Range { start, end, name } in search(&wanted) {
            let name = name.and_then(|name| function_name(&name)).map(Arc::new);
            added_bytes += ENTRY_BYTES + name.as_ref().map_or(0, |name| name.as_str().len());
            ranges.insert(start, (end, name));
        }
    }
    let names = addresses.iter().map(|address| known(ranges, *address).cloned().flatten()).collect();
    (names, added_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(path: &str) -> NewMapping {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        super::super::records::parse_maps(&maps)
            .find(|mapping| mapping.path.ends_with(path.as_bytes()))
            .unwrap()
    }

    fn here() -> (NewMapping, u64) {
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        (own(exe.to_str().unwrap()), here as fn() -> (NewMapping, u64) as usize as u64)
    }

    fn function(modules: &mut Modules, module: ModuleId, position: u64, budget_ns: u64) -> Option<String> {
        let found = modules.functions(module, &[position], Budget::of(budget_ns));
        found[0].as_ref().map(|name| name.as_str().to_owned())
    }

    #[test]
    fn functions_of_mapped_files_are_found_and_remembered() {
        let mut modules = Modules::new(Path::new("/proc"));
        let (mapping, address) = here();
        let module = modules.of(std::process::id(), &mapping);
        let position = modules.position(module, address, mapping.start, mapping.offset);
        let mut name = |budget_ns| function(&mut modules, module, position, budget_ns);
        assert_eq!(name(0), None, "there was no time");
        assert!(name(u64::MAX).unwrap().ends_with("modules::tests::here"));
        assert!(name(0).is_some(), "it is known");
        // Another job shares the functions of the file.
        let mut other = Modules::new(Path::new("/proc"));
        let module = other.of(std::process::id(), &mapping);
        assert!(other.functions(module, &[position], Budget::of(0))[0].is_some());
        assert!(other.functions(99, &[position], Budget::of(0))[0].is_none());
    }

    /// 40 960 addresses, each with a name of its own of 1 KiB.
    #[test]
    fn long_names_are_forgotten_before_they_fill_the_memory() {
        let mut modules = Modules::new(Path::new("/proc"));
        let made = NewMapping { start: 0, end: u64::MAX, offset: 0, file: (0, 0, 0), path: Vec::new() };
        let module = modules.of(7, &made);
        for first in (0..10 * 4096_u64).step_by(4096) {
            let Some(Symbols::Made { ranges, .. }) =
                modules.modules.get_mut(module as usize).map(|of| &mut of.symbols)
            else {
                panic!("no code of a process")
            };
            let addresses: Vec<u64> = (first..first + 4096).collect();
            let (names, added) = lookup(ranges, &addresses, Budget::of(u64::MAX), |wanted| {
                let name = |start: u64| format!("{start:x}{}", "n".repeat(1024)).into_bytes();
                wanted
                    .iter()
                    .map(|start| Range { start: *start, end: start + 1, name: Some(name(*start)) })
                    .collect()
            });
            assert!(names.iter().all(Option::is_some));
            let held: usize =
                ranges.values().map(|(_, name)| name.as_ref().map_or(0, |name| name.as_str().len())).sum();
            assert!(held < HELD_BYTES_MAX + 4096 * 1024, "{held}");
            modules.hold(added);
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_mapped_one_gives_no_names() {
        let mut modules = Modules::new(Path::new("/proc"));
        let (mut mapping, address) = here();
        mapping.file.2 += 1;
        let module = modules.of(std::process::id(), &mapping);
        let position = modules.position(module, address, mapping.start, mapping.offset);
        assert_eq!(modules.functions(module, &[position], Budget::of(u64::MAX)), [None]);
    }

    #[test]
    fn code_of_a_compiler_has_the_names_of_the_perf_map_of_its_user() {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        let map = |text: &str| std::fs::write(&path, text).unwrap();
        let mut modules = Modules::new(Path::new("/proc"));
        let anonymous =
            NewMapping { start: 0x1000, end: 0x9000, offset: 0, file: (0, 0, 0), path: b"//anon".to_vec() };
        let module = modules.of(std::process::id(), &anonymous);
        assert_eq!(modules.name(module).unwrap().as_str(), "[jit]");
        let position = modules.position(module, 0x1010, 0x1000, 0);
        let mut name = || function(&mut modules, module, position, u64::MAX);
        assert_eq!(name(), None);
        map("1000 20 first\n");
        assert_eq!(name().as_deref(), Some("first"));
        map("1000 20 first\n1008 20 second one\n");
        assert_eq!(name().as_deref(), Some("second one"), "the map has grown");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(name().as_deref(), Some("second one"), "what is no file is not read");
        std::fs::remove_dir(&path).unwrap();
    }
}
