//! Trees of machines as their kernels lay them out: Intel Sapphire Rapids, AMD Zen 4, NVIDIA Grace.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn pmus(root: &Path, files: &[(&str, &str)]) {
    write(&root.join("sys/bus/event_source/devices"), files);
}

fn sapphire_rapids(root: &Path) {
    let cpuinfo = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\n";
    write(root, &[("proc/cpuinfo", cpuinfo)]);
    pmus(
        root,
        &[
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/inv", "config:23\n"),
            ("cpu/format/cmask", "config:24-31\n"),
            ("cpu/format/ldlat", "config1:0-15\n"),
            ("cpu/events/branch-misses", "event=0xc5\n"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("cpu/events/topdown-retiring.scale", "2\n"),
            ("cpu/events/offcore", "event=0xb7,umask=0x1,offcore_rsp=?\n"),
        ],
    );
    for unit in 0..8 {
        let of = |file: &str| format!("uncore_imc_{unit}/{file}");
        let kind = format!("{}\n", 70 + unit);
        let files = [
            (of("type"), kind.as_str()),
            (of("cpumask"), "0,56\n"),
            (of("format/event"), "config:0-7\n"),
            (of("format/umask"), "config:8-15\n"),
            (of("events/cas_count_read"), "event=0x05,umask=0xcf\n"),
            (of("events/cas_count_read.scale"), "6.103515625e-5\n"),
            (of("events/cas_count_read.unit"), "MiB\n"),
            (of("events/cas_count_write"), "event=0x05,umask=0xf0\n"),
        ];
        pmus(root, &files.iter().map(|(file, text)| (file.as_str(), *text)).collect::<Vec<_>>());
    }
    pmus(root, &[("uncore_imc_free_running_0/type", "90\n")]);
}

fn zen_4(root: &Path) {
    let cpuinfo = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\n";
    write(root, &[("proc/cpuinfo", cpuinfo)]);
    pmus(
        root,
        &[
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7,32-35\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("amd_umc_0/type", "20\n"),
            ("amd_umc_0/cpumask", "0\n"),
            ("amd_umc_0/format/event", "config:0-7\n"),
            ("amd_umc_0/format/rdwrmask", "config:8-9\n"),
            ("amd_umc_12/type", "32\n"),
            ("amd_umc_12/cpumask", "96\n"),
            ("amd_umc_12/format/event", "config:0-7\n"),
            ("amd_umc_12/format/rdwrmask", "config:8-9\n"),
        ],
    );
}

fn grace(root: &Path) {
    write(root, &[("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n")]);
    pmus(
        root,
        &[
            ("armv8_pmuv3_0/type", "8\n"),
            ("armv8_pmuv3_0/cpus", "0-143\n"),
            ("armv8_pmuv3_0/format/event", "config:0-15\n"),
            ("armv8_pmuv3_0/events/cpu_cycles", "event=0x0011\n"),
        ],
    );
}

fn machine(lay_out: fn(&Path)) -> (tempfile::TempDir, EventPlaces) {
    let directory = tempfile::tempdir().unwrap();
    lay_out(directory.path());
    let places = EventPlaces::below(directory.path());
    (directory, places)
}

const fn core(kind: u32, config: u64, config1: u64) -> Config {
    Config { kind, config, config1, config2: 0, scale: None }
}

#[test]
fn events_of_cores_are_those_of_the_kernel_and_of_the_table() {
    let (_tree, places) = machine(sapphire_rapids);
    for (name, config) in [
        ("branch_misses", core(4, 0xc5, 0)),
        ("mem_loads", core(4, 0x1cd, 3)),
        ("fp_arith_inst_retired.scalar_double", core(4, 0x1c7, 0)),
        ("fp_arith_inst_retired.512b_packed_single", core(4, 0x80c7, 0)),
    ] {
        assert_eq!(core_event(&places, name).unwrap(), config, "{name}");
    }
    let (_tree, places) = machine(zen_4);
    assert_eq!(core_event(&places, "fp_ret_sse_avx_ops.all").unwrap(), core(4, 0xf03, 0));
    let (_tree, places) = machine(grace);
    assert_eq!(core_event(&places, "fp_scale_ops_spec").unwrap(), core(8, 0x80c0, 0));
    assert_eq!(core_event(&places, "cpu_cycles").unwrap(), core(8, 0x11, 0));
}

#[test]
fn units_are_counted_on_the_cpus_that_they_name() {
    let (_tree, places) = machine(sapphire_rapids);
    let events = unit_events(&places, "uncore_imc.cas_count_read").unwrap();
    assert_eq!(events.len(), 8, "not those of the free-running counters");
    let kinds: Vec<u32> = events.iter().map(|event| event.config.kind).collect();
    assert_eq!(kinds, (70..78).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.config.config == 0xcf05 && event.cpus == [0, 56]));
    let bytes = Some(EventScale { unit: Unit::Bytes, per_count: 64.0 });
    assert!(events.iter().all(|event| event.config.scale == bytes));
    assert_eq!(unit_events(&places, "uncore_imc.cas_count_write").unwrap()[0].config.scale, None);
    let (_tree, places) = machine(zen_4);
    let events = unit_events(&places, "amd_umc.umc_cas_cmd.wr").unwrap();
    let found: Vec<_> =
        events.iter().map(|event| (event.config.kind, event.config.config, &event.cpus[..])).collect();
    assert_eq!(found, [(20, 0x20a, &[0][..]), (32, 0x20a, &[96][..])]);
}

#[test]
fn what_a_machine_lacks_has_a_reason() {
    let (_tree, places) = machine(sapphire_rapids);
    let core_error = |name: &str| core_event(&places, name).unwrap_err().to_string();
    assert!(
        core_error("nothing")
            .starts_with("PMU cpu has no event `nothing`, nor has the table of events for GenuineIntel")
    );
    assert!(core_error("offcore").ends_with("`offcore_rsp=?`: it needs a value that only a user can choose"));
    assert!(core_error("").starts_with("choose an event by its name, such as perf.event.fp_arith"));
    assert!(core_error("topdown_retiring.scale").contains("no event"));
    let unit_error = |name: &str| unit_events(&places, name).unwrap_err().to_string();
    assert!(unit_error("amd_umc.umc_cas_cmd.rd").ends_with("has no PMU `amd_umc`"));
    assert!(unit_error("uncore_imc.none").contains("no event `none`"));
    let (_tree, places) = machine(|_| {});
    assert!(core_event(&places, "x").unwrap_err().to_string().contains("bus/event_source/devices: "));
    let (_tree, places) = machine(|root| pmus(root, &[("software/type", "1\n")]));
    assert!(core_event(&places, "x").unwrap_err().to_string().contains("has no PMU of the CPU"));
}

#[test]
fn malformed_files_are_errors() {
    for (file, text, message) in [
        ("cpu/type", "four\n", "`four` is not a number"),
        ("cpu/type", "-1\n", "`-1` is not a number"),
        ("cpu/cpumask", "x\n", "`x` is not a list of CPUs"),
        ("cpu/cpumask", "\n", "`` is not a list of CPUs"),
        ("cpu/events/e", "event=0xzz\n", "`event=0xzz`: invalid digit found in string"),
        ("cpu/events/e", "event=0x100\n", "`event=0x100`: it does not fit the bits of its field"),
        ("cpu/events/e", "event=1,weird=2\n", "`weird=2`: the PMU has no such field"),
        ("cpu/events/e", "../type=1\n", "`../type=1`: the PMU has no such field"),
        ("cpu/events/e", "event=18446744073709551616\n", "number too large"),
        ("cpu/events/e.scale", "fast\n", "events/e.scale: `fast` is not a decimal number from 1e-30 to 1e30"),
        ("cpu/events/e.scale", "\n", "`` is not a decimal number"),
        ("cpu/events/e.scale", "-2\n", "`-2` is not a decimal number"),
        ("cpu/events/e.unit", "Mi B\n", "events/e.unit: `Mi B` is not the name of a unit"),
        ("cpu/format/event", "config9:0-7\n", "is not a range of bits of config, config1 or config2"),
        ("cpu/format/event", "config:7-0\n", "is not a range of bits"),
        ("cpu/format/event", "config:0-64\n", "is not a range of bits"),
        ("cpu/format/event", "", "is not a range of bits"),
    ] {
        let (tree, places) = machine(|root| {
            pmus(
                root,
                &[("cpu/type", "4\n"), ("cpu/format/event", "config:0-7\n"), ("cpu/events/e", "event=1\n")],
            );
        });
        assert_eq!(core_event(&places, "e").unwrap(), core(4, 1, 0));
        pmus(tree.path(), &[(file, text)]);
        let error = core_event(&places, "e").unwrap_err().to_string();
        assert!(error.contains(message), "{file} {text:?}: {error}");
    }
}

#[test]
fn counts_have_the_scale_and_the_unit_that_the_kernel_states() {
    let (tree, places) = machine(sapphire_rapids);
    let scale = |name: &str| core_event(&places, name).unwrap().scale;
    assert_eq!(scale("branch_misses"), None);
    pmus(tree.path(), &[("cpu/events/branch-misses.scale", "2.3283064365386962890625e-10\n")]);
    let stated = |unit| Some(EventScale { unit, per_count: 1.0 / 4_294_967_296.0 });
    assert_eq!(scale("branch_misses"), stated(Unit::Count), "a missing unit");
    pmus(tree.path(), &[("cpu/events/branch-misses.unit", "Joules\n")]);
    assert_eq!(scale("branch_misses"), stated(Unit::Joules));
    pmus(tree.path(), &[("cpu/events/mem-loads.unit", "Joules\n")]);
    assert_eq!(scale("mem_loads"), Some(EventScale { unit: Unit::Joules, per_count: 1.0 }), "no scale");
    pmus(tree.path(), &[("cpu/events/mem-loads.unit", "Furlongs\n")]);
    assert_eq!(scale("mem_loads"), None, "another unit");
    pmus(tree.path(), &[("uncore_imc_3/events/cas_count_read.scale", "1\n")]);
    let differ = unit_events(&places, "uncore_imc.cas_count_read").unwrap_err().to_string();
    assert!(differ.contains("different scales for the event `cas_count_read`"), "{differ}");
}

#[test]
fn values_are_put_at_the_bits_of_their_field() {
    let place = Place::parse("config1:0-3,60-63").unwrap();
    let mut config = Config::default();
    place.put(0xa5, &mut config).unwrap();
    assert_eq!(config, Config { config1: 0xa000_0000_0000_0005, ..Config::default() });
    assert_eq!(place.put(0x100, &mut config), Err(BadTerm::TooLarge));
    let mut config = Config::default();
    Place::parse("config2:0-63").unwrap().put(u64::MAX, &mut config).unwrap();
    assert_eq!(config.config2, u64::MAX);
}

proptest! {
    #[test]
    fn any_format_takes_a_value_or_refuses_it(text in "config[12]?:[0-9,-]{0,12}\n(0x)?[0-9a-f]{1,18}") {
        check(text.as_bytes());
    }
}
