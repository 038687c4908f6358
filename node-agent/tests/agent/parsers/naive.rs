//! A second parser that shares no code with the one under test: it splits at white space, fills a table and
//! looks values up. The units are those of the kernel's documentation, not those of the catalogue.

use std::collections::HashMap;

use polymeter_agent::sources::layout::Wanted;
use polymeter_proto::catalogue::{Cell, Devices, Form, Hierarchy, Row, TextFile};
use polymeter_proto::series::Number;

use super::fixtures::{Fixture, Values};

/// Lines of a file by their keys, each with its words by the names or the columns.
type Table<'a> = HashMap<&'a str, HashMap<String, &'a str>>;

/// Values of all metrics of this file in `text`, which need not be the fixture's own.
pub(crate) fn values(fixture: &Fixture, text: &str) -> Values {
    let table = tabulate(fixture.form(), text);
    fixture.wanted.iter().flat_map(|wanted| look_up(fixture, &table, wanted)).collect()
}

/// Numbers in `text` for which there is no metric, as `key column`.
pub(crate) fn without_metric(fixture: &Fixture, text: &str) -> Vec<String> {
    let key_columns = match fixture.form() {
        Form::Keyed => 1,
        Form::KeyedAt(key) => key + 1,
        Form::Values | Form::Pairs | Form::Operations => 0,
    };
    let mut unknown = Vec::new();
    for (key, cells) in &tabulate(fixture.form(), text) {
        for (column, word) in cells {
            let is_key = column.parse::<usize>().is_ok_and(|column| column < key_columns);
            let is_number = word.starts_with(|c: char| c.is_ascii_digit()) || *word == "max";
            let mut rows = fixture
                .wanted
                .iter()
                .filter(|wanted| match_row(fixture.form(), key, wanted.field.row).is_some());
            if is_number && !is_key && !rows.any(|wanted| match_cell(column, wanted.field.cell)) {
                unknown.push(format!("{key} {column}"));
            }
        }
    }
    unknown
}

/// True if a line has a key of a metric of the file.
pub(crate) fn is_taken(fixture: &Fixture, line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let form = fixture.form();
    let before_pairs = words.iter().take_while(|word| !word.contains('=')).count();
    let key = match form {
        Form::Values | Form::Keyed | Form::Operations => words.first(),
        Form::KeyedAt(key) => words.get(key),
        Form::Pairs => before_pairs.checked_sub(1).map(|last| &words[last]),
    };
    let Some(key) = key else { return false };
    fixture.wanted.iter().map(|wanted| wanted.field).any(|field| {
        let has_operation = form != Form::Operations
            || matches!(field.cell, Cell::Named(name) if words.get(1) == Some(&name));
        match_row(form, key, field.row).is_some() && has_operation
    })
}

fn tabulate(form: Form, text: &str) -> Table<'_> {
    let mut table = Table::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let columns = words.iter().enumerate().map(|(column, word)| (column.to_string(), *word));
        match form {
            Form::Values => table.entry("").or_default().extend(columns),
            Form::Keyed => table.entry(words[0]).or_default().extend(columns),
            Form::KeyedAt(key) => table.entry(words[key]).or_default().extend(columns),
            Form::Pairs => {
                let names: Vec<&str> = words.iter().copied().take_while(|word| !word.contains('=')).collect();
                let pairs = words[names.len()..].iter().filter_map(|word| word.split_once('='));
                let Some(device) = names.last() else { continue };
                table.entry(device).or_default().extend(pairs.map(|(name, value)| (name.to_owned(), value)));
            }
            Form::Operations => {
                if let [device, operation, value] = words[..] {
                    table.entry(device).or_default().insert(operation.to_owned(), value);
                }
            }
        }
    }
    table
}

fn look_up(fixture: &Fixture, table: &Table<'_>, wanted: &Wanted) -> Vec<(String, Option<u64>)> {
    let mut values = Vec::new();
    let metric = wanted.definition.metric;
    for (key, cells) in table {
        let Some((instance, label)) = match_row(fixture.form(), key, wanted.field.row) else { continue };
        for (column, word) in cells {
            if !match_cell(column, wanted.field.cell) {
                continue;
            }
            let cell_label = match wanted.field.cell {
                Cell::Each(label) => Some(format!("{label}={column}")),
                Cell::Word(_) | Cell::Named(_) => None,
            };
            let path_labels = fixture.path_labels.iter().map(|(label, value)| format!("{label}={value}"));
            let mut labels: Vec<String> = path_labels.chain(label.clone()).chain(cell_label).collect();
            let name = metric.name.replace('*', instance);
            let value = value_of(fixture.file, key, column, word, cells);
            let is_float = without_time(word).contains('.')
                || parts(fixture.file).is_some()
                || is_link_rate(fixture.file);
            assert_eq!(is_float, metric.number == Number::Float, "{name}: {word}");
            labels.sort();
            values.push((format!("{name}{{{}}}", labels.join(",")), value));
        }
    }
    values
}

/// Instance and label of a line with this key, if it is one of the row's.
fn match_row(form: Form, written: &str, row: Row) -> Option<(&str, Option<String>)> {
    let key = written.trim_end_matches(':');
    match row {
        Row::Only => Some(("", None)),
        Row::Key(wanted) => (key == wanted).then_some(("", None)),
        Row::Instance("") => (!key.starts_with("nr_")).then_some((key, None)),
        Row::Instance(prefix) => key.strip_prefix(prefix).map(|instance| (instance, None)),
        Row::Each { label, prefix, numeric } => {
            let value = key.strip_prefix(prefix)?;
            let is_title = form == Form::Keyed && !written.ends_with(':');
            let fits = if numeric { value.parse::<u32>().is_ok() } else { !is_title };
            fits.then(|| ("", Some(format!("{label}={value}"))))
        }
    }
}

fn match_cell(column: &str, cell: Cell) -> bool {
    match cell {
        Cell::Word(wanted) => wanted.to_string() == column,
        Cell::Named(name) => name == column,
        Cell::Each(_) => true,
    }
}

/// How many of the metric's unit the file's unit holds, for sensors: millidegrees, microwatts and so on.
fn parts(file: &TextFile) -> Option<f64> {
    let name = file.path.rsplit('/').next()?;
    match name.split('*').next()? {
        "temp" | "in" | "curr" => Some(1e3),
        "power" | "energy" if name.contains('*') => Some(1e6),
        _ => None,
    }
}

/// Number before `@` and the time of its measurement, or before the colon and the name of a state.
fn without_time(word: &str) -> &str {
    word.split(['@', ':']).next().unwrap_or_default()
}

/// True for rates of links in Gb/s.
fn is_link_rate(file: &TextFile) -> bool {
    file.path.ends_with("/rate")
}

fn value_of(
    file: &TextFile,
    key: &str,
    column: &str,
    word: &str,
    cells: &HashMap<String, &str>,
) -> Option<u64> {
    let word = without_time(word);
    if is_link_rate(file) {
        return Some((word.parse::<f64>().unwrap() * 1e9 / 8.0).to_bits());
    }
    if word.contains('.') {
        return Some(word.parse::<f64>().unwrap().to_bits());
    }
    if let Some(parts) = parts(file) {
        return Some((word.parse::<f64>().unwrap() / parts).to_bits());
    }
    // No machine has 4 EiB: a larger value means "no limit", whatever the page size makes of it.
    let number = word.parse::<u64>().ok().filter(|number| *number < 1 << 62)?;
    let is_pressure = file.path.contains("pressure");
    let factor = match (file.hierarchy, file.path) {
        // Omni-Path: octets divided by eight. InfiniBand: by four. Ethernet: Mb/s.
        (Hierarchy::Sys, path) if path.ends_with("_data") && file.devices == Devices::Named("hfi") => 8,
        (Hierarchy::Sys, path) if path.ends_with("_data") => 4,
        (Hierarchy::Sys, path) if path.ends_with("/speed") => 125_000,
        // kHz, ms and kB.
        (Hierarchy::Sys, path) if path.ends_with("/scaling_cur_freq") => 1_000,
        (Hierarchy::Sys, path) if path.ends_with("act_freq_mhz") || path.ends_with("/act_freq") => 1_000_000,
        (Hierarchy::Sys, path) if path.ends_with("_time_ms") => 1_000_000,
        (Hierarchy::Sys, _) if cells.get("4") == Some(&"kB") => 1024,
        (Hierarchy::Proc, "stat") if key.starts_with("cpu") => 10_000_000,
        (_, "cpuacct.stat") => 10_000_000,
        (Hierarchy::Proc, "meminfo") if cells.get("2") == Some(&"kB") => 1024,
        (Hierarchy::Proc, "diskstats") if ["6", "10", "12", "13", "17", "19"].contains(&column) => 1_000_000,
        _ if key.ends_with("_usec") || (is_pressure && column == "total") => 1_000,
        _ => 1,
    };
    Some(number * factor)
}
