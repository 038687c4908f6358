//! Format of pprof: `proto/profile.proto` of github.com/google/pprof, compressed by gzip. The messages
//! are written by hand, with the fields that are used.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::stack_names::Function;
use super::tree::Tree;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<ProfileFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

/// Texts are positions in the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost function first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ProfileFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Holds each text once. The first one is empty.
#[derive(Debug)]
struct Strings {
    texts: Vec<String>,
    positions: HashMap<String, i64>,
}

impl Strings {
    fn position(&mut self, text: &str) -> i64 {
        if let Some(position) = self.positions.get(text) {
            return *position;
        }
        let position = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.push(text.to_owned());
        self.positions.insert(text.to_owned(), position);
        position
    }
}

/// Compresses the profile of a tree. `span_us` is the time of its samples in microseconds since the epoch,
/// `period_us` the time between two of them.
pub fn pprof(tree: &Tree, span_us: &Range<i64>, period_us: u64) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Compression into memory cannot fail.
    encoder.write_all(&profile(tree, span_us, period_us).encode_to_vec()).ok();
    encoder.finish().unwrap_or_default()
}

fn profile(tree: &Tree, span_us: &Range<i64>, period_us: u64) -> Profile {
    let mut strings = Strings { texts: vec![String::new()], positions: HashMap::from([(String::new(), 0)]) };
    let samples = ValueType { kind: strings.position("samples"), unit: strings.position("count") };
    let cpu = ValueType { kind: strings.position("cpu"), unit: strings.position("nanoseconds") };
    let mut mappings: HashMap<&str, u64> = HashMap::new();
    let mut mapping = Vec::new();
    let (mut location, mut function) = (Vec::new(), Vec::new());
    // Ids begin with 1.
    for (id, Function { module, .. }) in (1..).zip(tree.functions()) {
        let of_module = mappings.len() as u64 + 1;
        let mapping_id = *mappings.entry(module).or_insert(of_module);
        let filename = strings.position(module);
        if mapping_id == of_module {
            mapping.push(Mapping { id: mapping_id, filename, has_functions: true });
        }
        let label = tree.functions().get(usize::try_from(id - 1).unwrap_or(usize::MAX)).map(Function::label);
        let name = strings.position(&label.unwrap_or_default());
        location.push(Location { id, mapping_id, line: vec![Line { function_id: id }] });
        function.push(ProfileFunction { id, name, system_name: name, filename });
    }
    let mut sample = Vec::new();
    for (number, node) in tree.nodes().iter().enumerate().filter(|(_, node)| node.own.samples > 0) {
        let mut location_id = Vec::new();
        let mut next = Some(number);
        while let Some(node) = next.and_then(|number| tree.nodes().get(number)) {
            location_id.push(node.function as u64 + 1);
            next = node.parent;
        }
        sample.push(Sample { location_id, value: vec![count(node.own.samples), nanos(node.own.time_us)] });
    }
    Profile {
        sample_type: vec![samples, cpu],
        sample,
        mapping,
        location,
        function,
        string_table: strings.texts,
        time_nanos: span_us.start.saturating_mul(1000),
        duration_nanos: span_us.end.saturating_sub(span_us.start).saturating_mul(1000),
        period_type: Some(cpu),
        period: nanos(period_us),
    }
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn nanos(time_us: u64) -> i64 {
    count(time_us.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;
    use crate::stacks::tree::tests::{paths, tree};

    fn text(profile: &Profile, position: i64) -> &str {
        &profile.string_table[usize::try_from(position).unwrap()]
    }

    proptest! {
        #[test]
        fn samples_have_the_stacks_of_the_tree(paths in paths()) {
            let bytes = pprof(&tree(&paths), &(1_000_000..3_000_000), 10_000);
            let mut plain = Vec::new();
            GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
            let profile = Profile::decode(plain.as_slice()).unwrap();
            prop_assert_eq!(profile.string_table.first().map(String::as_str), Some(""));
            prop_assert_eq!((profile.time_nanos, profile.duration_nanos, profile.period), (1_000_000_000, 2_000_000_000, 10_000_000));
            let types: Vec<_> =
                profile.sample_type.iter().map(|of| (text(&profile, of.kind), text(&profile, of.unit))).collect();
            prop_assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
            let name = |id: &u64| {
                let location = profile.location.iter().find(|location| location.id == *id).unwrap();
                prop_assert!(profile.mapping.iter().any(|mapping| mapping.id == location.mapping_id));
                let function = profile.function.iter().find(|of| of.id == location.line[0].function_id).unwrap();
                Ok(text(&profile, function.name).to_owned())
            };
            let mut found: BTreeMap<Vec<String>, (i64, i64)> = BTreeMap::new();
            for sample in &profile.sample {
                let path: Result<Vec<String>, TestCaseError> = sample.location_id.iter().rev().map(name).collect();
                found.insert(path?, (sample.value[0], sample.value[1]));
            }
            let mut expected: BTreeMap<Vec<String>, (i64, i64)> = BTreeMap::new();
            for (path, weight) in &paths {
                let sum = expected.entry(path.iter().map(Function::label).collect()).or_default();
                sum.0 += 1;
                sum.1 += i64::try_from(weight.time_us).unwrap() * 1000;
            }
            prop_assert_eq!(found, expected);
        }
    }
}
