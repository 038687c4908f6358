//! What a scheduler says about a job: each field is read by itself, and the text of one that cannot be read
//! is kept, so that no field costs the others. Pure.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use polymeter_proto::series::Identifier;
use polymeter_proto::text::escape;

use super::environment::SchedulerEnvironment;

/// What schedulers write for a value that is not known or not set.
const NOTHING: [&str; 10] = [
    "N/A",
    "NOT_SET",
    "INVALID",
    "UNKNOWN",
    "PARTITION_LIMIT",
    "NONE",
    "(NULL)",
    "NULL",
    "NONE ASSIGNED",
    "NOT SET",
];

/// Parses an option whose value a scheduler provides: any bytes, made printable.
pub(super) fn printable() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| escape(text.as_bytes().trim_ascii()))
}

fn says_nothing(text: &str) -> bool {
    text.is_empty() || NOTHING.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[derive(Debug, Default)]
pub(super) struct Unread(Vec<(String, String)>);

impl Unread {
    /// None if the field says nothing or cannot be read.
    pub(super) fn read<T, E: Display>(
        &mut self,
        name: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let said = text.trim();
        if says_nothing(said) {
            return None;
        }
        parse(said).map_err(|error| self.note(name, said, &error)).ok()
    }

    pub(super) fn note(&mut self, name: &str, text: &str, error: &dyn Display) {
        let kept = format!("{name} {text}");
        self.0.push((format!("cannot read `{text}` of {name}: {error}; it counts as unknown"), kept));
    }

    pub(super) fn warnings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(warning, _)| warning.as_str())
    }

    pub(super) fn texts(&self) -> Option<String> {
        let texts: Vec<&str> = self.0.iter().map(|(_, text)| text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Reads options, and variables of the scheduler in their place.
#[derive(Debug)]
pub(super) struct Said<'a, E> {
    pub(super) environment: &'a E,
    pub(super) unread: Unread,
}

impl<E: SchedulerEnvironment> Said<'_, E> {
    /// Reads an option, or the first of the variables that is set in its place.
    pub(super) fn read<T>(
        &mut self,
        option: (&str, Option<&String>),
        variables: &[&str],
        parse: impl FnOnce(&str) -> Result<T, InvalidField>,
    ) -> Option<T> {
        let (name, text) = self.text(option, variables)?;
        self.unread.read(&name, &text, parse)
    }

    /// Shortens a long name; none for a blank one.
    pub(super) fn name(&mut self, option: (&str, Option<&String>), variables: &[&str]) -> Option<Identifier> {
        let (_, text) = self.text(option, variables)?;
        let text = text.trim();
        Identifier::try_from(text).ok().or_else(|| Identifier::escaped(text.as_bytes()))
    }

    /// An option, or the first of the variables that is set in its place, with its name.
    fn text(&self, (name, option): (&str, Option<&String>), variables: &[&str]) -> Option<(String, String)> {
        if let Some(text) = option {
            return Some((name.to_owned(), text.clone()));
        }
        variables.iter().find_map(|name| Some(((*name).to_owned(), self.environment.printable(name)?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidField {
    #[error("expected a whole number below 4294967296")]
    Number,
    #[error("expected a number with a unit of K, M, G, T, P or E, below 8E")]
    Size,
    #[error("expected a time such as 90, 1:30, 2:00:00, 1-12, 1-12:30:00 or UNLIMITED")]
    Time,
    #[error("expected NAME=COUNT")]
    Item,
    #[error("expected numbers or UUIDs such as 0,1")]
    Gpus,
    #[error("it has more than 256 bytes")]
    TooLong,
}

/// Refuses a list that is too long: a shortened one would be wrong.
pub(super) fn nodes(text: &str) -> Result<String, InvalidField> {
    Identifier::try_from(text).map(String::from).map_err(|_invalid| InvalidField::TooLong)
}

pub(super) fn number(text: &str) -> Result<u32, InvalidField> {
    text.parse().map_err(|_invalid| InvalidField::Number)
}

/// Parses an exit status with the signal, `0:15`, or without it.
pub(super) fn exit_status(text: &str) -> Result<(u32, Option<u32>), InvalidField> {
    match text.split_once(':') {
        None => Ok((number(text)?, None)),
        Some((code, signal)) => Ok((number(code)?, Some(number(signal)?))),
    }
}

/// Parses a time limit in Slurm's notation; none if there is no limit. `1-12:30` has hours and minutes behind
/// the days.
pub fn time_limit_s(text: &str) -> Result<Option<u64>, InvalidField> {
    if ["UNLIMITED", "INFINITE"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_invalid| InvalidField::Time);
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (Some(number(days)?), time),
        None => (None, text),
    };
    let parts: Vec<&str> = time.split(':').collect();
    if parts.len() > 3 {
        return Err(InvalidField::Time);
    }
    let mut seconds = 0_u64;
    for part in &parts {
        // The last part may have decimals, as elapsed times have.
        let decimals = part.split_once('.').filter(|(_, decimals)| number(decimals).is_ok());
        let whole = decimals.map_or(*part, |(whole, _)| whole);
        seconds = seconds
            .checked_mul(60)
            .and_then(|sum| sum.checked_add(number(whole).ok()?))
            .ok_or(InvalidField::Time)?;
    }
    // Behind days, the first part is hours.
    let missing = if days.is_some() { 3 - parts.len() } else { 0 };
    let scaled = (0..missing).try_fold(seconds, |sum, _| sum.checked_mul(60));
    let of_days = days.unwrap_or_default().checked_mul(86_400);
    let sum = scaled.zip(of_days).and_then(|(time, days)| time.checked_add(days));
    sum.filter(|sum| i64::try_from(*sum).is_ok()).map(Some).ok_or(InvalidField::Time)
}

/// Parses a number, also with decimals, with an optional binary unit up to E (`4.69P`), which `B` or `iB` may
/// follow. Refuses numbers that a store cannot hold.
pub fn quantity(text: &str) -> Result<u64, InvalidField> {
    let text = text.strip_suffix(['B', 'b']).map_or(text, |text| text.strip_suffix('i').unwrap_or(text));
    let last = text.chars().next_back().ok_or(InvalidField::Size)?;
    let unit = "KMGTPE".find(last.to_ascii_uppercase());
    let number = if unit.is_some() { text.get(..text.len() - 1).unwrap_or_default() } else { text };
    let factor = 1_u128 << (10 * unit.map_or(0, |unit| unit + 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = [whole, fraction]
        .iter()
        .all(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()));
    if !are_digits || whole.len() > 19 || fraction.len() > 18 {
        return Err(InvalidField::Size);
    }
    let digits = |digits: &str| digits.parse::<u128>().map_err(|_invalid| InvalidField::Size);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or_default());
    let sum = digits(whole)? * factor + digits(fraction)? * factor / scale;
    i64::try_from(sum).ok().and_then(|sum| u64::try_from(sum).ok()).ok_or(InvalidField::Size)
}

/// Parses the memory requested on each node, which sacct marks with an `n`: `4Gn`.
pub(super) fn memory(text: &str) -> Result<u64, InvalidField> {
    quantity(text.strip_suffix('n').unwrap_or(text))
}

/// Parses Slurm's notation `16(x2),8` into pairs: a number of cores, and how many nodes in a row have it.
fn cores_in_rows(per_node: &str) -> impl Iterator<Item = Result<(u32, u32), InvalidField>> {
    per_node.split(',').map(|part| match part.split_once("(x") {
        None => Ok((number(part)?, 1)),
        Some((cores, nodes)) => {
            Ok((number(cores)?, number(nodes.strip_suffix(')').ok_or(InvalidField::Number)?)?))
        }
    })
}

/// Adds up the cores of all nodes in Slurm's notation: `16(x2),8`.
pub(super) fn cores(per_node: &str) -> Result<u32, InvalidField> {
    cores_in_rows(per_node).try_fold(0_u32, |sum, row| {
        let (cores, nodes) = row?;
        cores.checked_mul(nodes).and_then(|of_row| sum.checked_add(of_row)).ok_or(InvalidField::Number)
    })
}

/// Cores of one node in Slurm's notation; its place in the list of nodes counts only where nodes differ.
pub(super) fn cores_at(per_node: &str, place: impl FnOnce() -> Option<usize>) -> Option<u32> {
    let rows: Vec<(u32, u32)> = cores_in_rows(per_node).collect::<Result<_, _>>().ok()?;
    let (first, _) = *rows.first()?;
    if rows.iter().all(|(cores, _)| *cores == first) {
        return Some(first);
    }
    let mut left = u32::try_from(place()?).ok()?;
    for (cores, nodes) in rows {
        match left.checked_sub(nodes) {
            None => return Some(cores),
            Some(behind) => left = behind,
        }
    }
    None
}

/// Most GPUs of a node that a range of numbers stands for.
const GPUS_MAX: u32 = 1024;

/// Parses a list of GPUs such as `0,2-4`, and writes its ranges out. Only numbers and UUIDs count:
/// `NoDevFiles` and the like name none.
pub(super) fn gpu_devices(list: &str) -> Result<String, InvalidField> {
    let mut devices: Vec<String> = Vec::new();
    for item in list.split(',').map(str::trim) {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        if item.starts_with("GPU-") || item.starts_with("MIG-") {
            devices.push(item.to_owned());
        } else if let Some((first, last)) =
            item.split_once('-').map(|(first, last)| (number(first), number(last)))
        {
            let (Some(first), Some(last)) = (first, last) else { continue };
            if last < first || last - first >= GPUS_MAX {
                return Err(InvalidField::Gpus);
            }
            devices.extend((first..=last).map(|number| number.to_string()));
        } else {
            devices.extend(number(item).map(|number| number.to_string()));
        }
    }
    // A GPU that is listed twice is one.
    let mut seen = BTreeSet::new();
    devices.retain(|device| seen.insert(device.clone()));
    let devices = devices.join(",");
    let is_list =
        devices.len() <= 4096 && devices.chars().all(|c| c.is_ascii_alphanumeric() || ",-/:".contains(c));
    is_list.then_some(devices).ok_or(InvalidField::Gpus)
}

/// Resources of a job on all its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tres {
    pub(super) memory_bytes_per_node: Option<u64>,
    pub(super) gpus: Option<u32>,
    pub(super) cores: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Amount {
    #[default]
    NotListed,
    Unknown,
    Known(u64),
}

impl Amount {
    /// Slurm counts memory in megabytes where it writes no unit.
    fn read(item: &str, value: &str, (option, unread): (&str, &mut Unread)) -> Self {
        let in_megabytes =
            item.starts_with("mem") && value.trim_end().ends_with(|c: char| c.is_ascii_digit());
        let value = if in_megabytes { format!("{}M", value.trim()) } else { value.to_owned() };
        let is_nothing = says_nothing(&value);
        let amount = if is_nothing { None } else { unread.read(option, item, |_| quantity(value.trim())) };
        amount.map_or(Self::Unknown, Self::Known)
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotListed, amount) => amount,
            (Self::Known(one), Self::Known(other)) => {
                one.checked_add(other).map_or(Self::Unknown, Self::Known)
            }
            (_, _) => Self::Unknown,
        }
    }

    const fn known(self) -> Option<u64> {
        match self {
            Self::Known(amount) => Some(amount),
            Self::NotListed | Self::Unknown => None,
        }
    }
}

impl Tres {
    /// Reads Slurm's notation, each item by itself, and ignores other resources. GPUs are counted as
    /// `gres/gpu`, by type as `gres/gpu:TYPE`, or both, depending on what Slurm tracks.
    pub(super) fn read(option: &str, text: &str, unread: &mut Unread) -> Self {
        let (mut memory, mut nodes, mut gpus, mut typed_gpus, mut cores) = Default::default();
        for item in text.split(',').map(str::trim).filter(|item| !says_nothing(item)) {
            let Some((name, value)) = item.split_once('=') else {
                unread.note(option, item, &InvalidField::Item);
                continue;
            };
            let of_item: &mut Amount = match name.trim() {
                "cpu" => &mut cores,
                "mem" => &mut memory,
                "node" => &mut nodes,
                "gres/gpu" => &mut gpus,
                name if name.starts_with("gres/gpu:") => &mut typed_gpus,
                _ => continue,
            };
            *of_item = of_item.plus(Amount::read(item, value, (option, &mut *unread)));
        }
        let gpus = gpus.known().or(typed_gpus.known());
        let nodes = if matches!(nodes, Amount::NotListed) { Some(1) } else { nodes.known() };
        Self {
            memory_bytes_per_node: memory.known().zip(nodes).and_then(|(sum, nodes)| sum.checked_div(nodes)),
            gpus: gpus.and_then(|gpus| u32::try_from(gpus).ok()),
            cores: cores.known().and_then(|cores| u32::try_from(cores).ok()).filter(|cores| *cores > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tres(text: &str) -> (Tres, Option<String>) {
        let mut unread = Unread::default();
        (Tres::read("--tres", text, &mut unread), unread.texts())
    }

    #[test]
    fn sizes_have_units_up_to_e_and_decimals() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("100M", 100 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("4k", 4096),
            ("1.25E", 5 << 58),
            ("512MiB", 512 << 20),
            ("3GB", 3 << 30),
            ("0.001K", 1),
            // 4.69 * 2^50, by another calculator.
            ("4.69P", 5_280_470_563_091_906),
        ] {
            assert_eq!(quantity(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "B",
            "1.G",
            ".5G",
            "4.69?",
            "8E",
            "-1G",
            "+1",
            "1e3",
            "0x10",
            "1 G",
            "99999999999999999999",
        ] {
            assert_eq!(quantity(text), Err(InvalidField::Size), "{text}");
        }
        assert_eq!((memory("4Gn"), memory("4Gc")), (Ok(4 << 30), Err(InvalidField::Size)));
    }

    #[test]
    fn times_have_all_forms_of_slurm_and_oar() {
        for (text, seconds) in [
            ("90", Some(90)),
            ("1:30", Some(90)),
            ("2:00:00", Some(7200)),
            ("10-00:00:00", Some(864_000)),
            ("1-12", Some(129_600)),
            ("1-12:30", Some(131_400)),
            ("0-00:00:01", Some(1)),
            ("00:01:02.5", Some(62)),
            ("UNLIMITED", None),
            ("infinite", None),
        ] {
            assert_eq!(time_limit_s(text), Ok(seconds), "{text}");
        }
        for text in ["", "1:2:3:4", "1-", "-1", "x", "1-1:1:1:1", "18446744073709551615-00:00:00", "1 h"] {
            assert_eq!(time_limit_s(text), Err(InvalidField::Time), "{text}");
        }
    }

    #[test]
    fn resources_are_read_item_by_item() {
        let per_node = |text: &str| tres(text).0.memory_bytes_per_node;
        assert_eq!(per_node("cpu=602112,mem=4.69P,node=9408"), Some(5_280_470_563_091_906 / 9408));
        assert_eq!(per_node("mem=1024,billing=3.5K,energy=N/A"), Some(1 << 30));
        assert_eq!((per_node("mem=30M,node=0"), per_node("node=2")), (None, None));
        for (text, unread) in [
            ("", None),
            ("N/A", None),
            ("mem=N/A,node=NOT_SET", None),
            ("mem=4.69Z,gres/gpu=2", Some("--tres mem=4.69Z")),
            ("mem=1G,node=many,gres/gpu=2", Some("--tres node=many")),
            ("gres/gpu=2,mem", Some("--tres mem")),
            ("gres/gpu=2,node=-1,mem=?", Some("--tres node=-1; --tres mem=?")),
        ] {
            let (read, texts) = tres(text);
            assert_eq!((read.memory_bytes_per_node, texts.as_deref()), (None, unread), "{text}");
            assert_eq!(read.gpus, unread.map(|_| 2), "{text}");
        }
    }

    #[test]
    fn cores_are_those_of_the_whole_job() {
        for (text, cores, unread) in [
            ("cpu=602112,mem=4.69P,node=9408", Some(602_112), None),
            ("billing=3,mem=x,cpu=2K", Some(2048), Some("--tres mem=x")),
            ("node=2,cpu=0", None, None),
            ("cpu=N/A,node=2", None, None),
            ("cpu=4G,node=2", None, None),
            ("cpu=-3,node=2", None, Some("--tres cpu=-3")),
            ("fs/disk=5,cpus=9", None, None),
        ] {
            let (read, texts) = tres(text);
            assert_eq!((read.cores, texts.as_deref()), (cores, unread), "{text}");
        }
    }

    #[test]
    fn gpus_are_counted_however_slurm_tracks_them() {
        for (text, gpus) in [
            ("billing=8,cpu=8,gres/gpu:h100=1,mem=8G,node=1", Some(1)),
            ("cpu=4,gres/gpu:a100=2,gres/gpu:3g.20gb=5,node=2", Some(7)),
            ("gres/gpu:v100=3,gres/gpu=4,cpu=1", Some(4)),
            ("gres/gpu=2,gres/gpu:v100=2", Some(2)),
            ("gres/gpu:a=1K", Some(1024)),
            ("cpu=1,gres/gpumem=80G,gres/gpuutil=90,gres/shard:a100=8", None),
            // Part of a sum is none.
            ("gres/gpu:a=1,gres/gpu:b=x", None),
            ("gres/gpu:a=1,gres/gpu=x", Some(1)),
            ("gres/gpu:a=4294967295,gres/gpu:b=1", None),
        ] {
            assert_eq!(tres(text).0.gpus, gpus, "{text}");
        }
    }

    #[test]
    fn other_fields_have_forms_of_their_own() {
        assert_eq!(exit_status("0:15"), Ok((0, Some(15))));
        assert_eq!((exit_status("3"), exit_status("3:x")), (Ok((3, None)), Err(InvalidField::Number)));
        assert_eq!((cores("16(x2),8"), cores("7")), (Ok(40), Ok(7)));
        assert_eq!(
            [0, 1, 2, 3].map(|place| cores_at("16(x2),8", || Some(place))),
            [Some(16), Some(16), Some(8), None]
        );
        let unknown = ["4(x2),4", "9", "4,5", "x", ""].map(|text| cores_at(text, || None));
        assert_eq!(unknown, [Some(4), Some(9), None, None, None]);
        for text in ["4294967295(x2)", "2(x3", "", "many"] {
            assert_eq!(cores(text), Err(InvalidField::Number), "{text}");
        }
        assert_eq!(gpu_devices("0, 1,NoDevFiles,MIG-a/1/2"), Ok("0,1,MIG-a/1/2".to_owned()));
        for (list, devices) in [
            ("0-3", "0,1,2,3"),
            ("0,2-4,7", "0,2,3,4,7"),
            ("1-2, 2-3,GPU-1-4,1", "1,2,3,GPU-1-4"),
            ("5-5,-1,3-,x-y", "5"),
        ] {
            assert_eq!(gpu_devices(list).as_deref(), Ok(devices), "{list}");
        }
        for list in ["GPU-;rm", "3-1", "0-4294967295"] {
            assert_eq!(gpu_devices(list), Err(InvalidField::Gpus), "{list}");
        }
        let mut unread = Unread::default();
        for word in ["", " ", "NOT_SET", "INVALID", "Partition_Limit", "N/A", "(null)", "Unknown"] {
            assert_eq!(unread.read("--time-limit", word, time_limit_s), None, "{word}");
        }
        assert_eq!(unread.texts(), None);
    }
}
