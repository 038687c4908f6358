//! Codes of events that the kernel does not list, by CPU model.

use std::sync::OnceLock;

use serde::Deserialize;
use std::collections::BTreeMap;

use super::cpu_model::CpuModel;
use polymeter_proto::catalogue::derived::Machine;

const TEXT: &str = include_str!("events.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    table: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// `intel`, `amd` or `neoverse_v2`.
    machine: String,
    family: Option<u64>,
    /// Models of the family; empty for all.
    #[serde(default)]
    models: Vec<u64>,
    /// Beginning of the names of its PMUs.
    pmu: String,
    #[serde(rename = "source")]
    _source: String,
    /// Codes by name, in the terms of the PMU's `format`.
    events: BTreeMap<String, String>,
}

impl Table {
    fn machine(&self) -> Option<Machine> {
        match self.machine.as_str() {
            "intel" => Some(Machine::Intel),
            "amd" => Some(Machine::Amd),
            "neoverse_v2" => Some(Machine::NeoverseV2),
            _ => None,
        }
    }

    fn is_of(&self, cpu: &CpuModel, pmu: &str) -> bool {
        let is_model = self.family.is_none_or(|family| cpu.is_of(family, &self.models));
        self.machine() == Some(cpu.machine()) && is_model && pmu.starts_with(&self.pmu)
    }
}

/// Tables; a test shows that the text is valid.
fn tables() -> &'static [Table] {
    static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
    TABLES.get_or_init(|| toml::from_str::<Tables>(TEXT).map(|tables| tables.table).unwrap_or_default())
}

pub(super) fn code(cpu: &CpuModel, pmu: &str, name: &str) -> Option<&'static str> {
    let of_cpu = tables().iter().filter(|table| table.is_of(cpu, pmu));
    of_cpu.filter_map(|table| table.events.get(name)).map(String::as_str).next()
}

pub(super) fn names(cpu: &CpuModel, pmu: &str) -> impl Iterator<Item = String> {
    let of_cpu = tables().iter().filter(|table| table.is_of(cpu, pmu));
    of_cpu.flat_map(|table| table.events.keys().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid() {
        let tables: Tables = toml::from_str(TEXT).unwrap();
        assert!(!tables.table.is_empty());
        for table in &tables.table {
            assert!(table.machine().is_some() && !table.events.is_empty(), "{table:?}");
            assert!(table._source.len() > 10, "{table:?}");
        }
    }
}
