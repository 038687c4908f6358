//! Processed format of the Firefox profiler, which <https://profiler.firefox.com> opens:
//! `docs-developer/processed-profile-format` of github.com/firefox-devtools/profiler, version 48.

use std::collections::HashMap;

use polymeter_proto::units;
use serde_json::{Value, json};

use super::tree::Tree;

/// Version of the format. The profiler reads older ones.
const VERSION: u32 = 48;

const CATEGORY: u32 = 0;

#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    pub node: &'a str,
    /// Id on the node; none for processes that are not told apart.
    pub process: Option<u32>,
    pub tree: &'a Tree,
}

/// Returns the profile of a job, which has a thread for each process. `start_us` is the time of the first
/// sample in microseconds since the epoch, `period_us` the time between two samples.
///
/// The times of samples within the profile are not known: the stacks follow each other, each for as long as
/// its samples stand for.
pub fn firefox(product: &str, start_us: i64, period_us: u64, processes: &[Process<'_>]) -> Value {
    let threads: Vec<Value> =
        (0_u32..).zip(processes).map(|(number, process)| thread(number, process)).collect();
    json!({
        "meta": {
            "interval": milliseconds(period_us.max(1)),
            "startTime": units::seconds_between(0, start_us) * 1e6,
            "processType": 0,
            "product": product,
            "stackwalk": 1,
            "version": 27,
            "preprocessedProfileVersion": VERSION,
            "symbolicated": true,
            "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]}],
            "markerSchema": [],
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        },
        "libs": [],
        "pages": [],
        "counters": [],
        "threads": threads,
    })
}

fn milliseconds(time_us: u64) -> f64 {
    units::to_f64(time_us) / 1000.0
}

/// Holds each text once.
#[derive(Debug, Default)]
struct Strings {
    texts: Vec<String>,
    positions: HashMap<String, usize>,
}

impl Strings {
    fn position(&mut self, text: String) -> usize {
        let new = self.texts.len();
        let position = *self.positions.entry(text.clone()).or_insert(new);
        if position == new {
            self.texts.push(text);
        }
        position
    }
}

fn thread(number: u32, process: &Process<'_>) -> Value {
    let Process { node, process, tree } = process;
    let mut strings = Strings::default();
    let process = process.map_or_else(|| "others".to_owned(), |process| process.to_string());
    let name = format!("{process} on {node}");
    json!({
        "name": name,
        "processName": name,
        "processType": "default",
        "isMainThread": true,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "pid": number.to_string(),
        "tid": number,
        "markers": {"length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": []},
        "samples": samples(tree),
        "stackTable": stack_table(tree),
        "frameTable": frame_table(tree),
        "funcTable": function_table(tree, &mut strings),
        "resourceTable": resource_table(tree, &mut strings),
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "stringArray": strings.texts,
    })
}

fn samples(tree: &Tree) -> Value {
    let (mut stack, mut time, mut weight) = (Vec::new(), Vec::new(), Vec::new());
    let mut passed_us = 0_u64;
    for (number, node) in tree.nodes().iter().enumerate().filter(|(_, node)| node.own.time_us > 0) {
        stack.push(number);
        time.push(milliseconds(passed_us));
        weight.push(milliseconds(node.own.time_us));
        passed_us = passed_us.saturating_add(node.own.time_us);
    }
    json!({"length": stack.len(), "stack": stack, "time": time, "weight": weight, "weightType": "tracing-ms"})
}

fn each(count: usize, value: impl Into<Value>) -> Vec<Value> {
    vec![value.into(); count]
}

/// A stack is a node of the tree, and has its number. A stack frame is a function, and has its number.
fn stack_table(tree: &Tree) -> Value {
    let count = tree.nodes().len();
    let (frames, prefixes): (Vec<_>, Vec<_>) =
        tree.nodes().iter().map(|node| (node.function, node.parent)).unzip();
    json!({
        "length": count, "frame": frames, "prefix": prefixes, "category": each(count, CATEGORY),
        "subcategory": each(count, 0),
    })
}

fn frame_table(tree: &Tree) -> Value {
    let count = tree.functions().len();
    let functions: Vec<usize> = (0..count).collect();
    json!({
        "length": count, "func": functions, "address": each(count, -1), "inlineDepth": each(count, 0),
        "category": each(count, CATEGORY), "subcategory": each(count, 0), "nativeSymbol": each(count, Value::Null),
        "innerWindowID": each(count, 0), "implementation": each(count, Value::Null), "line": each(count, Value::Null),
        "column": each(count, Value::Null),
    })
}

/// Modules of the functions, each once, in the order of their first functions.
fn modules(tree: &Tree) -> (Vec<&str>, HashMap<&str, usize>) {
    let (mut modules, mut positions) = (Vec::new(), HashMap::new());
    for function in tree.functions().iter().filter(|function| !function.module.is_empty()) {
        let new = modules.len();
        if *positions.entry(function.module.as_str()).or_insert(new) == new {
            modules.push(function.module.as_str());
        }
    }
    (modules, positions)
}

fn function_table(tree: &Tree, strings: &mut Strings) -> Value {
    let (_, positions) = modules(tree);
    let count = tree.functions().len();
    let (mut names, mut resources) = (Vec::new(), Vec::new());
    for function in tree.functions() {
        names.push(strings.position(function.label()));
        let resource =
            positions.get(function.module.as_str()).and_then(|position| i64::try_from(*position).ok());
        resources.push(resource.unwrap_or(-1));
    }
    json!({
        "length": count, "name": names, "resource": resources, "isJS": each(count, false),
        "relevantForJS": each(count, false), "fileName": each(count, Value::Null),
        "lineNumber": each(count, Value::Null), "columnNumber": each(count, Value::Null),
    })
}

fn resource_table(tree: &Tree, strings: &mut Strings) -> Value {
    const LIBRARY: u32 = 1;
    let (modules, _) = modules(tree);
    let names: Vec<usize> = modules.iter().map(|module| strings.position((*module).to_owned())).collect();
    let count = names.len();
    json!({
        "length": count, "name": names, "lib": each(count, Value::Null), "host": each(count, Value::Null),
        "type": each(count, LIBRARY),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stacks::stack_names::Function;
    use crate::stacks::tree::tests::{paths, tree};

    fn column<'a>(thread: &'a Value, table: &str, name: &str) -> &'a Vec<Value> {
        let column = thread[table][name].as_array().unwrap();
        assert_eq!(thread[table]["length"], column.len(), "{table}.{name}");
        column
    }

    fn index(value: &Value) -> usize {
        usize::try_from(value.as_u64().unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn a_thread_has_the_stacks_of_its_process(paths in paths()) {
            let tree = tree(&paths);
            let processes = [Process { node: "n1", process: Some(42), tree: &tree }];
            let profile = firefox("job 7", 2_500, 10_000, &processes);
            prop_assert_eq!((&profile["meta"]["startTime"], &profile["meta"]["interval"]), (&json!(2.5), &json!(10.0)));
            let thread = &profile["threads"][0];
            prop_assert_eq!(&thread["name"], "42 on n1");
            let strings = thread["stringArray"].as_array().unwrap();
            let mut found: Vec<(Vec<&str>, f64)> = Vec::new();
            for (stack, weight) in column(thread, "samples", "stack").iter().zip(column(thread, "samples", "weight")) {
                let (mut path, mut next) = (Vec::new(), stack);
                while !next.is_null() {
                    let frame = index(&column(thread, "stackTable", "frame")[index(next)]);
                    let function = index(&column(thread, "frameTable", "func")[frame]);
                    let name = index(&column(thread, "funcTable", "name")[function]);
                    path.push(strings[name].as_str().unwrap());
                    let resource = index(&column(thread, "funcTable", "resource")[function]);
                    let module = index(&column(thread, "resourceTable", "name")[resource]);
                    prop_assert_eq!(strings[module].as_str(), Some("m"));
                    next = &column(thread, "stackTable", "prefix")[index(next)];
                }
                path.reverse();
                found.push((path, weight.as_f64().unwrap()));
            }
            let mut expected = std::collections::BTreeMap::<Vec<String>, u64>::new();
            for (path, weight) in &paths {
                *expected.entry(path.iter().map(Function::label).collect()).or_default() += weight.time_us;
            }
            expected.retain(|_, time_us| *time_us > 0);
            prop_assert_eq!(found.len(), expected.len());
            for (path, weight) in found {
                let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
                prop_assert_eq!(expected.get(&path).map(|time_us| milliseconds(*time_us)), Some(weight));
            }
        }
    }
}
