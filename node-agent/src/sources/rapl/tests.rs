//! Tests of energy counters on laid-out machines, and of a perf event of this one.

use std::fs;

use polymeter_proto::catalogue;

use super::perf_events::{PmuEvent, event, packages};
use super::powercap::{PowercapCounter, zones};
use super::*;

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn domain(field: &str) -> &'static Domain {
    DOMAINS.iter().find(|domain| domain.field == field).unwrap()
}

const PMU: &str = "bus/event_source/devices/power";

/// Lays out the PMU of a machine with two packages, as an Intel Xeon has it.
fn lay_out_pmu(sys: &Path, kind: &str) {
    let files = [
        ("type", kind),
        ("cpumask", "0,24\n"),
        ("events/energy-pkg", "event=0x02\n"),
        ("events/energy-pkg.scale", "2.3283064365386962890625e-10\n"),
        ("events/energy-pkg.unit", "Joules\n"),
        ("events/energy-ram", "event=0x03\n"),
        ("events/energy-ram.scale", "2.3283064365386962890625e-10\n"),
        ("events/energy-ram.unit", "Joules\n"),
    ];
    files.iter().for_each(|(file, text)| write(sys, &[(&format!("{PMU}/{file}"), text)]));
    for (cpu, package, die) in [(0, "0\n", "0\n"), (24, "1\n", "0\n")] {
        let topology = format!("devices/system/cpu/cpu{cpu}/topology");
        write(
            sys,
            &[(&format!("{topology}/physical_package_id"), package), (&format!("{topology}/die_id"), die)],
        );
    }
}

#[test]
fn finds_the_events_of_the_pmu() {
    let sys = tempfile::tempdir().unwrap();
    assert_eq!(event(sys.path(), "energy-pkg").unwrap_err().to_string(), "this kernel has no PMU `power`");
    lay_out_pmu(sys.path(), "9\n");
    let expected = PmuEvent { kind: 9, config: 2, scale: 2.0_f64.powi(-32) };
    assert_eq!(event(sys.path(), "energy-pkg").unwrap(), expected);
    assert_eq!(event(sys.path(), "energy-gpu").unwrap_err().to_string(), "this CPU does not have the event");
    let path = |file: &str| format!("{PMU}/events/{file}");
    for (file, text, reason) in [
        ("energy-ram.unit", "Watts\n", "unknown unit `Watts`"),
        ("energy-ram", "umask=0x3\n", "unknown terms `umask=0x3`"),
        ("energy-ram", "", "unknown terms ``"),
    ] {
        lay_out_pmu(sys.path(), "9\n");
        write(sys.path(), &[(&path(file), text)]);
        assert_eq!(event(sys.path(), "energy-ram").unwrap_err().to_string(), reason);
    }
    for scale in ["0\n", "-1\n", "nan\n", "inf\n", "x\n"] {
        lay_out_pmu(sys.path(), "9\n");
        write(sys.path(), &[(&path("energy-ram.scale"), scale)]);
        assert!(event(sys.path(), "energy-ram").is_err(), "{scale}");
    }
}

#[test]
fn packages_with_several_counters_have_dies() {
    let sys = tempfile::tempdir().unwrap();
    lay_out_pmu(sys.path(), "9\n");
    let package = |number, die| Package { number, die };
    assert_eq!(packages(sys.path()).unwrap(), [(0, package(0, None)), (24, package(1, None))]);
    write(
        sys.path(),
        &[
            (&format!("{PMU}/cpumask"), "0-1,24\n"),
            ("devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
            ("devices/system/cpu/cpu1/topology/die_id", "1\n"),
        ],
    );
    let dies = [(0, package(0, Some(0))), (1, package(0, Some(1))), (24, package(1, None))];
    assert_eq!(packages(sys.path()).unwrap(), dies);
    write(sys.path(), &[(&format!("{PMU}/cpumask"), "\n")]);
    assert!(packages(sys.path()).is_err());
}

/// Opens the clock of a CPU in place of an energy counter, in the same way as RAPL's events.
#[test]
fn a_perf_event_counts_joules() {
    let sys = tempfile::tempdir().unwrap();
    // PERF_TYPE_SOFTWARE; 0 is the clock of a CPU, in nanoseconds, and 9 counts nothing.
    write(
        sys.path(),
        &[
            (&format!("{PMU}/type"), "1\n"),
            (&format!("{PMU}/cpumask"), "0\n"),
            (&format!("{PMU}/events/energy-pkg"), "event=0x00\n"),
            (&format!("{PMU}/events/energy-pkg.scale"), "1e-9\n"),
            (&format!("{PMU}/events/energy-pkg.unit"), "Joules\n"),
            (&format!("{PMU}/events/energy-psys"), "event=0x09\n"),
            (&format!("{PMU}/events/energy-psys.scale"), "1e-9\n"),
            (&format!("{PMU}/events/energy-psys.unit"), "Joules\n"),
            ("devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
        ],
    );
    let proc = sys.path().join("proc");
    let open = |field| {
        let counters = open_domain(sys.path(), &proc, domain(field)).map_err(|reason| reason.to_string())?;
        let definition = catalogue::find(&format!("node.energy.{field}")).unwrap();
        Ok::<_, String>(RaplSource::new(&definition, counters))
    };
    let mut source = match open("package") {
        Ok(source) => source,
        // Without the right to count all processes of a CPU.
        Err(reason) => return assert!(reason.contains("permission denied"), "{reason}"),
    };
    assert_eq!(source.slots()[0].labels.to_string(), "package=0");
    assert_eq!(source.longest_gap_ns(), None);
    let [first, second] = [(); 2].map(|()| {
        let mut reading = Reading::absent(1);
        assert_eq!(source.read(&mut reading), Outcome::Read);
        f64::from_bits(reading.get(0).unwrap())
    });
    assert!(0.0 < first && first < second, "{first} {second}");

    let mut platform = open("platform").unwrap();
    assert!(platform.slots()[0].labels.is_empty());
    let mut reading = Reading::absent(1);
    assert_eq!(platform.read(&mut reading), Outcome::Retry(Errno::NODATA), "a counter that counts nothing");
    assert_eq!(reading.get(0), None);
}

#[test]
fn each_zone_counts_once() {
    let sys = tempfile::tempdir().unwrap();
    let zone = |id: &str, name: &str| write(sys.path(), &[(&format!("class/powercap/{id}/name"), name)]);
    for (id, name) in [
        ("intel-rapl:0", "package-0\n"),
        ("intel-rapl:0:0", "core\n"),
        ("intel-rapl:0:1", "uncore\n"),
        ("intel-rapl:0:2", "dram\n"),
        ("intel-rapl:1", "psys\n"),
        ("intel-rapl-mmio:0", "package-0\n"),
        ("intel-rapl-mmio:0:0", "dram\n"),
        ("intel-rapl:2", "package-1-die-1\n"),
        ("intel-rapl:3", "something\n"),
        ("dtpm:0", "package-7\n"),
    ] {
        zone(id, name);
    }
    write(
        sys.path(),
        &[("class/powercap/intel-rapl/enabled", "1\n"), ("class/powercap/intel-rapl:4/enabled", "0\n")],
    );
    let found = zones(sys.path());
    let of = |zone: &str| -> Vec<Option<Package>> {
        let zone = format!("class/powercap/{zone}");
        let at = sys.path().join(zone);
        found.iter().filter(|found| found.is_at(&at)).map(|found| found.package).collect()
    };
    let package = |number, die| Some(Package { number, die });
    for id in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:0:2"] {
        assert_eq!(of(id), [package(0, None)], "{id}");
    }
    assert_eq!(of("intel-rapl:1"), [None]);
    assert_eq!(of("intel-rapl:2"), [package(1, Some(1))]);
    assert_eq!(found.len(), 6, "{found:?}");
}

#[test]
fn a_zone_counts_from_its_first_reading() {
    let sys = tempfile::tempdir().unwrap();
    write(
        sys.path(),
        &[
            ("energy_uj", "262143328849\n"),
            ("max_energy_range_uj", "262143328850\n"),
            ("constraint_0_max_power_uw", "2500000000\n"),
            ("constraint_1_max_power_uw", ""),
        ],
    );
    let mut counter = PowercapCounter::open(sys.path()).unwrap();
    assert_eq!(counter.longest_gap_ns(), Some(52_428_665_000), "at twice 2500 W");
    assert_eq!(counter.read(0), Ok(Some(0.0)));
    write(sys.path(), &[("energy_uj", "1499999\n")]);
    assert_eq!(counter.read(1_000_000_000), Ok(Some(1.5)));
    for text in ["", "x\n", "-1\n", "18446744073709551616\n"] {
        write(sys.path(), &[("energy_uj", text)]);
        assert_eq!(counter.read(2_000_000_000), Ok(None), "{text:?}");
    }
    write(sys.path(), &[("energy_uj", "2499999\n")]);
    assert_eq!(counter.read(3_000_000_000), Ok(Some(2.5)));
    assert_eq!(counter.read(60_000_000_000), Err(Outcome::Fault(Errno::OVERFLOW)));
}

#[test]
fn stated_limits_without_meaning_are_not_believed() {
    let sys = tempfile::tempdir().unwrap();
    write(
        sys.path(),
        &[
            ("energy_uj", "5\n"),
            ("max_energy_range_uj", "65532610987\n"),
            ("constraint_0_max_power_uw", "18446744073709551615\n"),
        ],
    );
    let counter = PowercapCounter::open(sys.path()).unwrap();
    assert_eq!(counter.longest_gap_ns(), Some(32_766_305_000), "at 2000 W");
    write(sys.path(), &[("max_energy_range_uj", "0\n")]);
    assert_eq!(PowercapCounter::open(sys.path()).unwrap().longest_gap_ns(), None);
    write(sys.path(), &[("max_energy_range_uj", "1000\n")]);
    let reason = PowercapCounter::open(sys.path()).unwrap_err().to_string();
    assert!(reason.ends_with("energy_uj: it wraps around within a second"), "{reason}");
}

#[test]
fn a_zone_that_stands_at_0_counts_nothing() {
    let sys = tempfile::tempdir().unwrap();
    write(sys.path(), &[("energy_uj", "0\n")]);
    let mut counter = PowercapCounter::open(sys.path()).unwrap();
    assert_eq!([counter.read(0), counter.read(1)], [Ok(None), Ok(None)]);
    write(sys.path(), &[("energy_uj", "61\n")]);
    assert_eq!(counter.read(2), Ok(Some(0.000_061)));
    fs::remove_file(sys.path().join("energy_uj")).unwrap();
    assert!(
        PowercapCounter::open(sys.path())
            .unwrap_err()
            .to_string()
            .ends_with("energy_uj: No such file or directory (os error 2)")
    );
}

#[test]
fn the_cores_of_amd_are_not_counted_by_powercap() {
    let root = tempfile::tempdir().unwrap();
    let (sys, proc) = (root.path().join("sys"), root.path().join("proc"));
    write(
        &sys,
        &[
            ("class/powercap/intel-rapl:0/name", "package-0\n"),
            ("class/powercap/intel-rapl:0/energy_uj", "5\n"),
            ("class/powercap/intel-rapl:0:0/name", "core\n"),
            ("class/powercap/intel-rapl:0:0/energy_uj", "5\n"),
        ],
    );
    let open = |field| {
        let opened = open_domain(&sys, &proc, domain(field)).map(|counters| counters.len());
        opened.map_err(|reason| reason.to_string())
    };
    assert_eq!((open("package"), open("cores")), (Ok(1), Ok(1)));
    write(&proc, &[("cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\n")]);
    assert_eq!(open("package"), Ok(1));
    assert_eq!(
        open("cores"),
        Err("perf power/energy-cores/: this kernel has no PMU `power`; powercap counts only one core of each package on this CPU"
            .to_owned())
    );
}

type Answer = Result<Option<f64>, Outcome>;

#[derive(Debug)]
struct Given(Answer);

impl EnergyCounter for Given {
    fn read(&mut self, _now_ns: u64) -> Result<Option<f64>, Outcome> {
        self.0
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        None
    }
}

fn read(answers: Vec<(Option<u32>, Answer)>) -> (Outcome, Vec<Option<f64>>) {
    let definition = catalogue::find("node.energy.package").unwrap();
    let counters = answers.into_iter().map(|(number, answer)| -> PlacedCounter {
        (number.map(|number| Package { number, die: None }), Box::new(Given(answer)))
    });
    let mut source = RaplSource::new(&definition, counters.collect());
    let mut reading = Reading::absent(source.slots().len());
    let outcome = source.read(&mut reading);
    (outcome, reading.iter().map(|bits| bits.map(f64::from_bits)).collect())
}

#[test]
fn a_counter_that_fails_alone_is_absent() {
    let retry = Outcome::Retry(Errno::AGAIN);
    assert_eq!(
        read(vec![(Some(1), Ok(Some(2.5))), (Some(0), Err(retry))]),
        (Outcome::Read, vec![None, Some(2.5)])
    );
    assert_eq!(read(vec![(Some(0), Err(retry))]), (retry, vec![None]));
    assert_eq!(read(vec![(Some(0), Ok(None))]), (Outcome::Retry(Errno::NODATA), vec![None]));
    let fault = Outcome::Fault(Errno::OVERFLOW);
    assert_eq!(read(vec![(Some(0), Ok(Some(1.0))), (Some(1), Err(fault))]).0, fault);
    // The platform's energy is the sum of what the packages count of it.
    assert_eq!(
        read(vec![(None, Ok(Some(1.0))), (None, Ok(None)), (None, Ok(Some(0.5)))]),
        (Outcome::Read, vec![Some(1.5)])
    );
}
