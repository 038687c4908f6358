//! Series of devices, and their back-off.

use std::fs;

use polymeter_proto::catalogue;
use polymeter_proto::exposition::{ExporterPage, ExporterSeries, Format, Wanted};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use super::*;
use crate::sources::outside::Scale;

fn settings(url: &str, metrics: Vec<DeviceMetric>) -> DeviceSettings {
    let name = Identifier::try_from("pdu-3").unwrap();
    let nodes = [("7".to_owned(), Identifier::try_from("node17").unwrap())].into();
    let word = DeviceSettings::word_of(name.as_str());
    let timeout = Period::SECOND;
    DeviceSettings {
        name,
        word,
        url: url.parse().unwrap(),
        credentials: None,
        timeout,
        node: None,
        nodes,
        job_label: None,
        metrics,
    }
}

fn metric(name: &'static str, address: &str) -> DeviceMetric {
    DeviceMetric::new(MetricName::new(name).unwrap(), address.to_owned())
}

/// Series of a value, and how it is read.
fn placed(device: &DeviceSettings, found: Found) -> (Slot, Place) {
    super::place(device, found, &mut BTreeSet::new()).unwrap()
}

fn found(label: Option<&str>, of_type: DeviceValue) -> Found {
    let labels = label.map(|value| ("index".to_owned(), value.to_owned())).into_iter().collect();
    Found { metric: 0, address: "1.3.6.1".to_owned(), labels, unit: Unit::Bytes, of_type, factor: 1.0 }
}

#[test]
fn a_value_has_the_name_unit_and_labels_of_the_configuration() {
    let outlet = DeviceMetric {
        unit: Some(DeviceUnit::Known(Unit::Watts)),
        scale: Scale::new(0.1).unwrap(),
        label: Some("outlet".to_owned()),
        ..metric("outlet.power", "x")
    };
    let device = settings("file:///x", vec![outlet.clone()]);
    let (slot, place) = placed(&device, found(Some("7"), DeviceValue::Gauge));
    let of_slot = (slot.definition.name(), slot.definition.metric.unit, slot.labels.to_string());
    let labels = "device=pdu-3,node=node17,outlet=7".to_owned();
    assert_eq!(of_slot, ("device.pdu_3.outlet.power".to_owned(), Unit::Watts, labels));
    assert_eq!(place.bits(Number::Whole(985)).map(f64::from_bits), Some(98.5));
    let energy =
        DeviceMetric { unit: Some(DeviceUnit::Other("kWh".to_owned())), is_counter: Some(true), ..outlet };
    let device = settings("file:///x", vec![energy]);
    let (slot, place) = placed(&device, found(None, DeviceValue::Gauge));
    assert_eq!(slot.labels.to_string(), "device=pdu-3,unit=kWh");
    assert_eq!((place.of_type, slot.definition.metric.unit), (DeviceValue::Sum, Unit::Labelled));
}

#[test]
fn a_series_is_about_the_node_of_its_outlet_or_of_the_device() {
    let served = |device: &DeviceSettings, label: Option<&str>| {
        let labels = placed(device, found(label, DeviceValue::Gauge)).0.labels;
        labels.get("node").map(str::to_owned)
    };
    let mut device = settings("file:///x", vec![metric("power", "x")]);
    assert_eq!(
        [served(&device, Some("7")).as_deref(), served(&device, Some("8")).as_deref()],
        [Some("node17"), None]
    );
    device.node = Identifier::try_from("node3").ok();
    let of = |label| served(&device, label);
    assert_eq!([of(Some("7")), of(Some("8")), of(None)].map(Option::unwrap), ["node17", "node3", "node3"]);
    device.metrics[0].label = Some("node".to_owned());
    assert_eq!(served(&device, Some("node9")).as_deref(), Some("node9"), "its lines name the nodes");
}

/// Pages of DCGM's exporter, of Lustre's, and lines in the form of OSC's exporter of cgroups.
const PAGES: [&str; 3] = [
    include_str!("../../../../../e2e/fuzz/corpus/exposition/dcgm"),
    include_str!("../../../../../e2e/fuzz/corpus/exposition/lustre"),
    "cgroup_memory_used_bytes{cgroup=\"/slurm/uid_20821/job_12\"} 315392\n\
     cgroup_memory_used_bytes{cgroup=\"/slurm/uid_20821/job_12/step_0\"} 4096\n\
     cgroup_memory_used_bytes{cgroup=\"/user.slice/user-20821.slice\"} 6.90176e+06\n\
     cgroup_memory_used_bytes{cgroup=\"/torque/1182958.batch.example.com\"} 5.3e+10\n",
];

/// Labels of all series of a page, of a device that serves node17.
fn job_labels(page: &str, label: &str, pattern: Option<&str>) -> Vec<String> {
    let mut device = settings("http://x", vec![metric("value", "x")]);
    device.node = Identifier::try_from("node17").ok();
    let pattern = pattern.map(|pattern| pattern.parse().unwrap());
    let cluster = Identifier::try_from("lab").ok();
    device.job_label = Some(JobLabel { label: label.to_owned(), pattern, cluster });
    let wanted = Wanted { selectors: &[], series: VALUES_MAX, now_us: 0 };
    let page = ExporterPage::read(page.as_bytes(), Format::Text, &wanted).unwrap();
    let of = |series: &ExporterSeries<'_>| {
        let labels = series.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let found = Found { labels: labels.collect(), ..found(None, DeviceValue::Gauge) };
        let labels = placed(&device, found).0.labels;
        let of_job = ["job_cluster", "job_id", "node", label].map(|key| labels.get(key).unwrap_or("-"));
        of_job.join(" ")
    };
    page.series.iter().map(of).collect()
}

#[test]
fn labels_of_exporters_name_jobs_and_others_stay_with_the_device() {
    let of_gpu = "lab 4711 node17 -";
    // A GPU without a job is one of the node.
    assert_eq!(job_labels(PAGES[0], "hpc_job", None), [of_gpu, of_gpu, "- - node17 -"]);
    let of_lustre = job_labels(PAGES[1], "jobid", Some("{number}.*"));
    assert_eq!(of_lustre, ["- - node17 -", "lab 4711 node17 -", "- - - cp.0"]);
    let of_slurm = job_labels(PAGES[2], "cgroup", Some("slurm/uid_{uid}/job_{job}"));
    let nobody = ["- - - /torque/1182958.batch.example.com", "- - - /user.slice/user-20821.slice"];
    assert_eq!(of_slurm, ["lab 12 node17 -", "lab 12 node17 -", nobody[0], nobody[1]]);
    let of_torque = job_labels(PAGES[2], "cgroup", Some("torque/{number}.*"));
    assert_eq!(of_torque[2], "lab 1182958 node17 -");
    // An exporter cannot name a job where the configuration names no label, nor a node.
    let lying = "a{job_id=\"7\",job_cluster=\"x\",node=\"n9\"} 1\n";
    assert_eq!(job_labels(lying, "jobid", None), ["- - node17 -"]);
    assert_eq!(job_labels(lying, "job_id", None), ["lab 7 node17 7"]);
}

#[test]
fn whole_counters_stay_whole_and_wrap_where_the_device_does() {
    let device = settings("file:///x", vec![metric("port.receive.bytes", "x")]);
    for (of_type, wraps_at) in [(DeviceValue::Count, None), (DeviceValue::Count32, Some(1 << 32))] {
        let (slot, place) = placed(&device, found(Some("1"), of_type));
        assert_eq!(slot.definition.metric.wraps_at, wraps_at);
        assert_eq!(place.bits(Number::Whole(u64::MAX)), Some(u64::MAX));
        assert_eq!(place.bits(Number::Double(1.5)), None, "the device answers something else now");
    }
    let scaled = DeviceMetric { scale: Scale::new(512.0).unwrap(), ..metric("disk", "x") };
    let (_, place) = placed(&settings("file:///x", vec![scaled]), found(None, DeviceValue::Count32));
    assert_eq!(place.bits(Number::Whole(2)).map(f64::from_bits), Some(1024.0));
    let gauge = DeviceMetric { is_counter: Some(false), ..metric("level", "x") };
    let (_, place) = placed(&settings("file:///x", vec![gauge]), found(None, DeviceValue::Count));
    assert_eq!((place.of_type, place.bits(Number::Double(f64::NAN))), (DeviceValue::Gauge, None));
}

fn read(device: &Device, wanted: &[u32]) -> (Outcome, Vec<Option<f64>>) {
    let places = device.known().places;
    let mut reading = Reading::absent(places.len()).wanted_only();
    wanted.iter().for_each(|slot| reading.want(*slot));
    let outcome = device.read(&places, &mut reading);
    (outcome, reading.iter().map(|bits| bits.map(f64::from_bits)).collect())
}

#[test]
fn a_device_that_fails_is_left_alone_for_a_while_and_keeps_its_series() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("values");
    let changes: Arc<Changes> = Arc::default();
    let version = || changes.version.load(Acquire);
    let settings = settings("file:///values", vec![metric("x", "n?"), metric("y", "missing")]);
    let device = Device::new(settings, root.path(), Arc::clone(&changes));
    device.search();
    let missing = device.known().missing.unwrap();
    assert!(missing.contains("No such file"), "{missing}");
    fs::write(&path, "n1 1\nn2 2\n").unwrap();
    device.search();
    assert!(device.known().places.is_empty(), "it is too early");
    let again = || lock(&device.state).retry_ns = 0;
    again();
    device.search();
    assert_eq!((device.known().places.len(), device.known().missing, version()), (2, None, 1));
    assert_eq!(read(&device, &[1]), (Outcome::Read, vec![None, Some(2.0)]), "only what is wanted");
    assert_eq!(read(&device, &[0]), (Outcome::Read, vec![Some(1.0), None]));
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&device, &[0]).0, Outcome::Retry(Errno::NOENT));
    fs::write(&path, "n1 2\nn2 2\n").unwrap();
    assert_eq!(read(&device, &[0]), (Outcome::Retry(Errno::NOENT), vec![None, None]), "it is not tried");
    fs::remove_file(&path).unwrap();
    assert_eq!(device.known().places.len(), 2);
    for failures in 2..12 {
        again();
        let before_ns = clock::monotonic_ns();
        assert_eq!(read(&device, &[0]).0, Outcome::Retry(Errno::NOENT));
        let wait_ns = lock(&device.state).retry_ns - before_ns;
        let expected_ns = (BACK_OFF_NS << (failures - 1)).min(BACK_OFF_MAX_NS);
        assert!(wait_ns >= expected_ns && lock(&device.state).failures == failures);
    }
    fs::write(&path, "n1 3\nn2 2\n").unwrap();
    again();
    assert_eq!(read(&device, &[0]).1, [Some(3.0), None]);
    device.search();
    assert_eq!(version(), 1, "it has what it had");
}

#[test]
fn two_values_of_one_name_are_one_series() {
    let device = Device::new(settings("file:///x", vec![metric("x", "x")]), Path::new("/"), Arc::default());
    device.publish(vec![
        found(Some("a"), DeviceValue::Gauge),
        found(Some("a"), DeviceValue::Gauge),
        found(Some("b"), DeviceValue::Gauge),
    ]);
    assert_eq!(device.known().places.len(), 2);
}

#[test]
fn a_reload_keeps_devices_of_which_only_periods_differ() {
    let mut devices = OutsideDevices::default();
    let mut one = settings("file:///x", vec![metric("x", "x")]);
    devices.update(std::slice::from_ref(&one), Path::new("/"));
    let known = Arc::clone(devices.iter().next().unwrap());
    let changed = BTreeSet::from([one.name.clone()]);
    assert_eq!((devices.take_changed(), devices.take_changed()), (changed.clone(), BTreeSet::new()));
    one.metrics[0].sampling = "1s".parse().ok();
    devices.update(std::slice::from_ref(&one), Path::new("/"));
    assert!(Arc::ptr_eq(&known, devices.iter().next().unwrap()) && devices.take_changed().is_empty());
    one.metrics[0].address = "y".to_owned();
    devices.update(std::slice::from_ref(&one), Path::new("/"));
    assert!(!Arc::ptr_eq(&known, devices.iter().next().unwrap()) && devices.take_changed() == changed);
    assert_eq!(devices.open(&one.name).0.len(), 1);
    devices.update(&[], Path::new("/"));
    assert!(devices.iter().next().is_none() && devices.take_changed() == changed);
    assert!(devices.open(&one.name).0.is_empty(), "it is closed");
}

#[test]
fn a_device_that_gets_other_values_is_the_only_changed_one() {
    let named = |name: &str| DeviceSettings {
        name: Identifier::try_from(name).unwrap(),
        word: DeviceSettings::word_of(name),
        ..settings("file:///x", vec![metric("x", "x"), metric("y", "y")])
    };
    let mut devices = OutsideDevices::default();
    devices.update(&[named("a"), named("b"), named("c")], Path::new("/"));
    assert_eq!(devices.take_changed().len(), 3);
    let (b, version) = (Identifier::try_from("b").unwrap(), devices.version());
    let device = Arc::clone(devices.get(&b).unwrap());
    device.publish(vec![found(Some("7"), DeviceValue::Gauge)]);
    assert_eq!((devices.take_changed(), devices.version()), ([b.clone()].into(), version + 1));
    assert!(devices.served_nodes().contains("node17"));
    // What it lacks is said of it; another name has neither a source nor a reason.
    let (opened, unavailable) = devices.open(&b);
    let missing: Vec<String> = unavailable.iter().map(|missing| missing.definition.name()).collect();
    assert_eq!(
        (opened.len(), opened[0].source.slots().len(), missing),
        (1, 1, vec!["device.b.y".to_owned()])
    );
    device.publish(vec![found(Some("7"), DeviceValue::Gauge)]);
    assert!(devices.take_changed().is_empty(), "it has what it had");
    let wanted = ["device.b.x", "device.b.z", "device.d.x"].map(|name| catalogue::find(name).unwrap());
    let lacking: Vec<String> = devices.lacking(&wanted).map(Definition::name).collect();
    assert_eq!(lacking, ["device.b.z", "device.d.x"]);
}
