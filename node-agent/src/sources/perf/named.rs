//! Events by name: the PMUs of the machine as the kernel describes them, and a table of CPU models for the
//! names that it does not list.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-{events,format}`.

use std::fs;
use std::io;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};

use polymeter_proto::series::Unit;

use super::cpu_model::CpuModel;
use super::event_config::{Config, EventPlaces};
use super::event_scale::{self, EventScale};
use super::event_table;
use crate::sources::cpu_list;
use crate::sources::kernel_text::{self, FileError};

/// Bound of the files of a directory of PMUs or events that are looked at: a machine has some hundreds of
/// either.
const ENTRIES_MAX: usize = 4096;

/// Bound of the units of a PMU, such as memory controllers, whose events are summed.
const UNITS_MAX: usize = 256;

/// PMUs of a CPU's own counters; the first that exists counts. Those of Arm end in a number.
const CORE_PMUS: [&str; 2] = ["cpu", "cpu_core"];
const ARM_CORE_PMUS: [&str; 2] = ["armv8_pmuv3", "armv8_"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum NoEvent {
    #[error("{0}")]
    File(FileError),
    #[error("{}: `{text}` is not a number", path.display())]
    Number { path: PathBuf, text: String },
    #[error("{}: `{text}` is not a list of CPUs", path.display())]
    Cpus { path: PathBuf, text: String },
    #[error("{}: `{text}` is not a range of bits of config, config1 or config2", path.display())]
    Format { path: PathBuf, text: String },
    #[error("{}: `{text}` is not a decimal number from 1e-30 to 1e30", path.display())]
    Scale { path: PathBuf, text: String },
    #[error("{}: `{text}` is not the name of a unit", path.display())]
    Unit { path: PathBuf, text: String },
    #[error("the units of PMU {pmu} have different scales for the event `{name}`")]
    Scales { pmu: String, name: String },
    #[error("{origin}: `{term}`: {error}")]
    Term { origin: String, term: String, error: BadTerm },
    #[error("{} has no PMU of the CPU; virtual machines often lack one", .0.display())]
    NoCorePmu(PathBuf),
    #[error("{} has no PMU `{pmu}`", directory.display())]
    NoPmu { directory: PathBuf, pmu: String },
    #[error(
        "PMU {pmu} has no event `{name}`, nor has the table of events for {cpu}; `perf list` names its events, and perf.raw takes any code"
    )]
    Unknown { pmu: String, name: String, cpu: String },
    #[error("expected the name of a PMU and of its event, joined by a dot")]
    Form,
    #[error("choose an event by its name, such as {examples}")]
    Unnamed { examples: String },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTerm {
    #[error("{0}")]
    Number(ParseIntError),
    #[error("it needs a value that only a user can choose")]
    Parameter,
    #[error("the PMU has no such field")]
    Field,
    #[error("it does not fit the bits of its field")]
    TooLarge,
}

#[derive(Debug)]
pub(crate) struct Pmu {
    name: String,
    directory: PathBuf,
    kind: u32,
    /// CPUs on which its events are counted, one for each socket or die; `None` for a PMU of all CPUs.
    pub(crate) cpus: Option<Vec<usize>>,
}

/// An event of one unit of a PMU, with the CPUs on which it is counted.
#[derive(Debug)]
pub(crate) struct UnitEvent {
    pub(crate) config: Config,
    pub(crate) cpus: Vec<usize>,
}

/// Code of an event of the CPU's own counters, if this machine has it.
pub(crate) fn core_event(places: &EventPlaces, name: &str) -> Result<Config, NoEvent> {
    let pmu = core_pmu(places)?;
    if name.is_empty() {
        return Err(NoEvent::Unnamed { examples: pmu.examples(places) });
    }
    pmu.event(places, name)
}

/// Event of the units of a PMU outside of the cores: `uncore_imc.cas_count_read` is that of `uncore_imc_0`,
/// `uncore_imc_1` and so on.
pub(crate) fn unit_events(places: &EventPlaces, instance: &str) -> Result<Vec<UnitEvent>, NoEvent> {
    if instance.is_empty() {
        return Err(NoEvent::Unnamed { examples: "node.pmu.uncore_imc.cas_count_read".to_owned() });
    }
    let (wanted, name) = instance.split_once('.').ok_or(NoEvent::Form)?;
    let directory = places.pmus();
    let names = entries(&directory).map_err(NoEvent::File)?;
    let mut units: Vec<&String> = names.iter().filter(|pmu| is_unit_of(pmu, wanted)).collect();
    units.truncate(UNITS_MAX);
    if units.is_empty() {
        return Err(NoEvent::NoPmu { directory, pmu: wanted.to_owned() });
    }
    let mut events = Vec::new();
    for unit in units {
        let pmu = Pmu::open(&directory, unit)?;
        let config = pmu.event(places, name)?;
        events.push(UnitEvent { config, cpus: pmu.cpus.unwrap_or_else(|| vec![0]) });
    }
    let mut scales = events.iter().map(|event| event.config.scale);
    let first = scales.next();
    if scales.any(|scale| Some(scale) != first) {
        return Err(NoEvent::Scales { pmu: wanted.to_owned(), name: name.to_owned() });
    }
    Ok(events)
}

/// True if a PMU is the wanted one, or one of its numbered units.
fn is_unit_of(pmu: &str, wanted: &str) -> bool {
    let Some(rest) = normalized(pmu).strip_prefix(wanted).map(str::to_owned) else { return false };
    rest.is_empty()
        || rest
            .strip_prefix('_')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

fn core_pmu(places: &EventPlaces) -> Result<Pmu, NoEvent> {
    let directory = places.pmus();
    let names = entries(&directory).map_err(NoEvent::File)?;
    let of_x86 = CORE_PMUS.iter().find_map(|wanted| names.iter().find(|name| name.as_str() == *wanted));
    let mut of_arm =
        ARM_CORE_PMUS.iter().filter_map(|begin| names.iter().find(|name| name.starts_with(*begin)));
    match of_x86.or_else(|| of_arm.next()) {
        Some(name) => Pmu::open(&directory, name),
        None => Err(NoEvent::NoCorePmu(directory)),
    }
}

impl Pmu {
    fn open(directory: &Path, name: &str) -> Result<Self, NoEvent> {
        let directory = directory.join(name);
        let path = directory.join("type");
        let text = kernel_text::text(&path).map_err(FileError::of(&path)).map_err(NoEvent::File)?;
        let kind = text
            .trim()
            .parse()
            .map_err(|_invalid: ParseIntError| NoEvent::Number { path, text: shown(&text) })?;
        let cpus = cpus_of(&directory)?;
        Ok(Self { name: name.to_owned(), directory, kind, cpus })
    }

    /// Code of its event `name`: of the kernel's list, else of the table.
    fn event(&self, places: &EventPlaces, name: &str) -> Result<Config, NoEvent> {
        let events = self.directory.join("events");
        let listed = optional_entries(&events)?;
        if let Some(file) = listed.iter().find(|file| !is_attribute(file) && normalized(file) == name) {
            let path = events.join(file);
            let text = kernel_text::text(&path).map_err(FileError::of(&path)).map_err(NoEvent::File)?;
            let config = self.config(text.trim(), &path.display().to_string())?;
            return Ok(Config { scale: scale_of(&events, file)?, ..config });
        }
        let cpu = CpuModel::read(&places.proc);
        let code = event_table::code(&cpu, &self.name, name);
        let unknown =
            || NoEvent::Unknown { pmu: self.name.clone(), name: name.to_owned(), cpu: cpu.to_string() };
        self.config(code.ok_or_else(unknown)?, "the table of events")
    }

    /// Numbers of a code such as `event=0xc7,umask=0x01`, whose parts the files in `format` place.
    fn config(&self, code: &str, origin: &str) -> Result<Config, NoEvent> {
        let mut config = Config { kind: self.kind, ..Config::default() };
        for term in code.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let bad = |error| NoEvent::Term { origin: origin.to_owned(), term: shown(term), error };
            let (field, text) = term.split_once('=').unwrap_or((term, "1"));
            if text.trim() == "?" {
                return Err(bad(BadTerm::Parameter));
            }
            let value = number(text.trim()).map_err(|error| bad(BadTerm::Number(error)))?;
            let place = match self.place(field.trim())? {
                Some(place) => place,
                None => return Err(bad(BadTerm::Field)),
            };
            place.put(value, &mut config).map_err(bad)?;
        }
        Ok(config)
    }

    /// Place of a field; `None` if the PMU does not have it.
    fn place(&self, field: &str) -> Result<Option<Place>, NoEvent> {
        if let Some(word) = Word::of(field) {
            return Ok(Some(Place { word, ranges: vec![(0, 63)] }));
        }
        if field.is_empty()
            || !field.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
        {
            return Ok(None);
        }
        let path = self.directory.join("format").join(field);
        let Some(text) = optional_text(&path)? else { return Ok(None) };
        match Place::parse(text.trim()) {
            Some(place) => Ok(Some(place)),
            None => Err(NoEvent::Format { path, text: shown(&text) }),
        }
    }

    fn examples(&self, places: &EventPlaces) -> String {
        let listed = optional_entries(&self.directory.join("events")).unwrap_or_default();
        let listed = listed.iter().filter(|file| !is_attribute(file)).map(|file| normalized(file));
        let cpu = CpuModel::read(&places.proc);
        let of_table = event_table::names(&cpu, &self.name);
        let names: Vec<String> =
            of_table.chain(listed).take(3).map(|name| format!("perf.event.{name}")).collect();
        if names.is_empty() { "perf.event.NAME".to_owned() } else { names.join(", ") }
    }
}

fn cpus_of(directory: &Path) -> Result<Option<Vec<usize>>, NoEvent> {
    let path = directory.join("cpumask");
    let Some(text) = optional_text(&path)? else { return Ok(None) };
    let cpus = cpu_list::parse(text.trim()).filter(|cpus| !cpus.is_empty());
    cpus.map(Some).ok_or_else(|| NoEvent::Cpus { path, text: shown(&text) })
}

/// None if the values of the event are counts.
fn scale_of(events: &Path, event: &str) -> Result<Option<EventScale>, NoEvent> {
    let (mut scale, mut unit) = (1.0, (Unit::Count, 1.0));
    let path = events.join(format!("{event}.scale"));
    if let Some(text) = optional_text(&path)? {
        scale = event_scale::scale(text.trim()).ok_or_else(|| NoEvent::Scale { path, text: shown(&text) })?;
    }
    let path = events.join(format!("{event}.unit"));
    if let Some(text) = optional_text(&path)? {
        unit = event_scale::unit(text.trim()).ok_or_else(|| NoEvent::Unit { path, text: shown(&text) })?;
    }
    Ok(EventScale::of(scale, unit))
}

/// None if there is no such file.
fn optional_text(path: &Path) -> Result<Option<String>, NoEvent> {
    match kernel_text::text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NoEvent::File(FileError { path: path.to_owned(), error })),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Config,
    Config1,
    Config2,
}

impl Word {
    fn of(name: &str) -> Option<Self> {
        match name {
            "config" => Some(Self::Config),
            "config1" => Some(Self::Config1),
            "config2" => Some(Self::Config2),
            _ => None,
        }
    }
}

/// Bits of a field: inclusive ranges, the lowest bits of a value first.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    word: Word,
    ranges: Vec<(u32, u32)>,
}

impl Place {
    /// Parses the text of a format: `config:0-7,32-35`.
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let word = Word::of(word)?;
        let mut places = Vec::new();
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > 63 || places.len() >= 64 {
                return None;
            }
            places.push((first, last));
        }
        Some(Self { word, ranges: places })
    }

    fn put(&self, value: u64, config: &mut Config) -> Result<(), BadTerm> {
        let word = match self.word {
            Word::Config => &mut config.config,
            Word::Config1 => &mut config.config1,
            Word::Config2 => &mut config.config2,
        };
        let mut left = value;
        for (first, last) in &self.ranges {
            let width = last - first + 1;
            let mask = u64::MAX >> (64 - width);
            *word |= (left & mask) << first;
            left = left.checked_shr(width).unwrap_or(0);
        }
        if left == 0 { Ok(()) } else { Err(BadTerm::TooLarge) }
    }
}

fn number(text: &str) -> Result<u64, ParseIntError> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    hexadecimal.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
}

/// True for a file beside an event, which describes it.
fn is_attribute(file: &str) -> bool {
    [".scale", ".unit", ".per-pkg", ".snapshot"].iter().any(|end| file.ends_with(end))
}

/// Name in the form of names of metrics: `branch-misses` is `branch_misses`.
fn normalized(name: &str) -> String {
    name.chars()
        .map(|character| match character.to_ascii_lowercase() {
            lower if lower.is_ascii_alphanumeric() || lower == '.' => lower,
            _ => '_',
        })
        .collect()
}

fn shown(text: &str) -> String {
    const SHOWN_CHARACTERS: usize = 60;
    text.trim().chars().take(SHOWN_CHARACTERS).collect()
}

fn entries(directory: &Path) -> Result<Vec<String>, FileError> {
    let listed = fs::read_dir(directory).map_err(FileError::of(directory))?;
    let names = listed.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

fn optional_entries(directory: &Path) -> Result<Vec<String>, NoEvent> {
    match entries(directory) {
        Err(FileError { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(NoEvent::File),
    }
}

pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    event_scale::check(&text);
    let (format, value) = text.split_once('\n').unwrap_or((&text, "0"));
    let Some(place) = Place::parse(format) else { return };
    let (Ok(value), mut config) = (number(value), Config::default()) else { return };
    let put = place.put(value, &mut config);
    let bits: u32 = place.ranges.iter().map(|(first, last)| last - first + 1).sum();
    assert!(put.is_ok() || bits < 64);
}

#[cfg(test)]
mod tests;
