//! Parsers of the sources, for the fuzz target `e2e/fuzz/src/sources.rs` and the tests below.
//!
//! A new kind needs an entry, with a function beside its parser that takes any bytes and panics if they break
//! a rule, and a real input in `e2e/fuzz/corpus/sources`, whose first byte is the entry's key.

use super::ebpf;
use super::{
    beegfs, cpu_list, dcmi, drm, gpfs, gpu_clients, job_cpus, lustre, mount_table, nfs, nvidia, outside,
    perf, process_files, process_list, rapl, refresh, resctrl, served_jobs, stacks, taskstats, value_file,
};

#[derive(Debug)]
pub struct Parser {
    /// First byte of an input for this parser.
    pub key: u8,
    /// Also the name of its input in `e2e/fuzz/corpus/sources`.
    pub name: &'static str,
    pub kinds: &'static [&'static str],
    /// Parses any bytes; panics if a rule is broken.
    pub check: fn(&[u8]),
}

const fn parser(key: u8, name: &'static str, kinds: &'static [&'static str], check: fn(&[u8])) -> Parser {
    Parser { key, name, kinds, check }
}

const OF_PROCESSES: &[&str] =
    &["processes", "cgroup_processes", "process_io", "job_cpus", "busiest", "kfd", "drm", "resctrl"];

const OF_MOUNTS: &[&str] = &["filesystem", "lustre", "nfs", "gpfs", "beegfs", "resctrl", "ebpf"];

/// All parsers but that of kernel text files, which has its own fuzz target (`kernel_text`).
pub static PARSERS: &[Parser] = &[
    parser(b'a', "affinity", &["job_cpus"], job_cpus::check),
    parser(b'B', "beegfs", &["beegfs"], beegfs::check),
    parser(b'b', "btf", &["ebpf"], ebpf::check),
    parser(b'c', "cpu_list", &["job_cpus", "rapl"], cpu_list::check),
    parser(b'C', "children", OF_PROCESSES, process_list::check),
    parser(b'd', "drm_clients", &["drm"], gpu_clients::check),
    parser(b'e', "environment", &["nvidia", "nvidia_job"], nvidia::check),
    parser(b'E', "energy_event", &["rapl"], rapl::check_event),
    parser(b'f', "forks", &["perf"], perf::check),
    parser(b'g', "gpu_metrics", &["amdgpu"], drm::check_amdgpu_table),
    parser(b'i', "ipmi", &["ipmi"], dcmi::check),
    parser(b'I', "ipmi_lan", &["device"], outside::check_ipmi_lan),
    parser(b'j', "job_stats", &["lustre_jobs"], served_jobs::check),
    parser(b'L', "device_lines", &["device"], outside::check_lines),
    parser(b'S', "snmp", &["device"], outside::check_snmp),
    parser(b'k', "kfd", &["kfd"], drm::check_kfd),
    parser(b'l', "lustre_stats", &["lustre"], lustre::check),
    parser(b'm', "mountinfo", OF_MOUNTS, mount_table::check),
    parser(b'M', "mmpmon", &["gpfs"], gpfs::check),
    parser(b'n', "nfs_mountstats", &["nfs"], nfs::check),
    parser(b'P', "pmu_format", &["perf"], perf::check_format),
    parser(b'p', "process", OF_PROCESSES, process_files::check),
    parser(b'F', "redfish", &["device"], outside::check_redfish),
    parser(b'r', "resctrl", &["resctrl"], resctrl::check),
    parser(b'R', "refresh_interval", &["blocking_file"], refresh::check),
    parser(b's', "stacks", &["stacks", "stacks_dwarf", "stacks_wait"], stacks::check),
    parser(b't', "taskstats", &["taskstats"], taskstats::check),
    parser(b'v', "value_file", &["blocking_file"], value_file::check),
    parser(b'z', "powercap_zone", &["rapl"], rapl::check_zone),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use polymeter_proto::catalogue::TEXT_FILE_KIND;
    use proptest::prelude::*;

    use super::*;
    use crate::sources::KINDS;

    /// Kinds without a parser of their own: the agent's counts, and kernel text files.
    const OTHERS: [&str; 2] = ["agent", TEXT_FILE_KIND];

    fn seeds() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/fuzz/corpus/sources")
    }

    fn inputs() -> Vec<(&'static Parser, Vec<u8>)> {
        PARSERS
            .iter()
            .map(|parser| {
                let path = seeds().join(parser.name);
                let mut bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert_eq!(bytes.remove(0), parser.key, "the first byte of {}", path.display());
                (parser, bytes)
            })
            .collect()
    }

    #[test]
    fn every_kind_has_a_parser_that_is_fuzzed() {
        let fuzzed: BTreeSet<&str> = PARSERS.iter().flat_map(|parser| parser.kinds).copied().collect();
        let kinds: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        let missing: Vec<&&str> =
            kinds.iter().filter(|kind| !fuzzed.contains(*kind) && !OTHERS.contains(kind)).collect();
        assert!(missing.is_empty(), "no parser of {missing:?} is in PARSERS");
        assert!(fuzzed.is_subset(&kinds), "{fuzzed:?}");
        assert!(seeds().join("../../src/kernel_text.rs").exists(), "of {TEXT_FILE_KIND}");
    }

    #[test]
    fn keys_and_names_differ() {
        let keys: BTreeSet<u8> = PARSERS.iter().map(|parser| parser.key).collect();
        let names: BTreeSet<&str> = PARSERS.iter().map(|parser| parser.name).collect();
        assert_eq!((keys.len(), names.len()), (PARSERS.len(), PARSERS.len()));
    }

    #[test]
    fn rules_hold_for_real_inputs_and_their_beginnings() {
        for (parser, input) in inputs() {
            (0..=input.len()).for_each(|end| (parser.check)(&input[..end]));
        }
    }

    #[test]
    fn rules_hold_for_the_inputs_of_others() {
        let inputs = inputs();
        for (parser, _) in &inputs {
            inputs.iter().for_each(|(_, input)| (parser.check)(input));
        }
    }

    proptest! {
        #[test]
        fn rules_hold_for_edited_inputs(
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..20, prop::collection::vec(any::<u8>(), 0..8)), 1..6),
        ) {
            for (parser, mut input) in inputs() {
                for (at, count, bytes) in &cuts {
                    let at = at.index(input.len() + 1);
                    let end = (at + count).min(input.len());
                    input.splice(at..end, bytes.iter().copied());
                }
                (parser.check)(&input);
            }
        }
    }
}
