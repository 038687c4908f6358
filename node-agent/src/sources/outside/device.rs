//! A device under sampling: its connection, the values that were found, and its back-off after failures. They
//! stay when sources are opened anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::catalogue::{Definition, DeviceValue, of_device};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, JOB_CLUSTER_LABEL, JOB_LABEL, Labels, Unit};
use rustix::io::Errno;
use tracing::{info, warn};

use super::connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
use super::protocols::connect;
use super::settings::{DeviceMetric, DeviceSettings, DeviceUnit, JobLabel};
use crate::clock;
use crate::sources::lock::lock;
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use crate::sources::unknown_lines::UnknownLines;

/// Wait after the first failure, which doubles with each further one.
const BACK_OFF_NS: u64 = 1_000_000_000;

/// Longest wait after a failure: a device that returns is sampled within a minute.
const BACK_OFF_MAX_NS: u64 = 60_000_000_000;

/// Time between two searches for the values of a device, which may get ports and sensors.
const SEARCH_INTERVAL_NS: u64 = 600_000_000_000;

/// Longest time for the ends of all connections when the agent ends.
const END_NS: u64 = 2_000_000_000;

/// Time between two looks whether they have ended.
const END_STEP: Duration = Duration::from_millis(5);

/// Stack of a thread that ends a connection, which may encrypt.
const END_STACK_BYTES: usize = 256 * 1024;

/// Label of the node that a port or outlet serves.
const NODE: &str = "node";

#[derive(Debug)]
pub(in crate::sources) struct Device {
    pub(in crate::sources) settings: DeviceSettings,
    root: PathBuf,
    state: Mutex<State>,
    values: Mutex<KnownValues>,
    changes: Arc<Changes>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Box<dyn Connection>>,
    /// Failures since the last success.
    failures: u32,
    /// Error of the last failure.
    errno: Option<Errno>,
    /// No attempt is made before this time on the monotonic clock.
    retry_ns: u64,
    searched_ns: Option<u64>,
}

/// Values that the last search has found.
#[derive(Debug, Default, Clone)]
pub(in crate::sources) struct KnownValues {
    pub(in crate::sources) slots: Arc<[Slot]>,
    /// Place of the value of each slot.
    pub(in crate::sources) places: Arc<[Place]>,
    /// Nodes that they are about.
    serves: Arc<BTreeSet<String>>,
    /// Reason why there are none.
    pub(in crate::sources) missing: Option<String>,
}

/// Address and form of the value of a slot.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sources) struct Place {
    address: Box<str>,
    of_type: DeviceValue,
    /// Factor from the device's number to the stored value.
    factor: f64,
}

impl Device {
    pub(super) fn new(settings: DeviceSettings, root: &Path, changes: Arc<Changes>) -> Self {
        let missing = Some("the device has not answered yet".to_owned());
        Self {
            settings,
            root: root.to_owned(),
            state: Mutex::default(),
            values: Mutex::new(KnownValues { missing, ..KnownValues::default() }),
            changes,
        }
    }

    pub(in crate::sources) fn known(&self) -> KnownValues {
        lock(&self.values).clone()
    }

    /// True if it sends values by itself.
    pub(super) fn is_pushed(&self) -> bool {
        lock(&self.state).connection.as_ref().is_some_and(|connection| connection.is_pushed())
    }

    pub(super) fn unknown_lines(&self) -> UnknownLines {
        let state = lock(&self.state);
        state.connection.as_ref().map(|connection| connection.unknown_lines()).unwrap_or_default()
    }

    pub(super) fn drain(&self) {
        if let Some(connection) = &mut lock(&self.state).connection {
            connection.drain();
        }
    }

    /// Ends the connection; the next read makes a new one. May block.
    fn end(&self) {
        lock(&self.state).end();
    }

    /// Searches for values, unless a failure was a short time ago or the last search is young enough. May
    /// block.
    pub(super) fn search(&self) {
        let mut state = lock(&self.state);
        let now_ns = clock::monotonic_ns();
        let is_due = state
            .searched_ns
            .is_none_or(|searched_ns| now_ns.saturating_sub(searched_ns) >= SEARCH_INTERVAL_NS);
        if !is_due || now_ns < state.retry_ns {
            return;
        }
        let found = state.connection(self).and_then(|connection| connection.find(&self.settings.metrics));
        match found {
            Ok(found) => {
                state.succeed(self);
                state.searched_ns = Some(clock::monotonic_ns());
                self.publish(found);
            }
            Err(error) => {
                let mut values = lock(&self.values);
                values.missing = values.places.is_empty().then(|| error.to_string());
                drop(values);
                state.fail(self, &error);
            }
        }
    }

    fn publish(&self, found: Vec<Found>) {
        let found = found.into_iter().take(VALUES_MAX);
        let mut names = BTreeSet::new();
        let mut placed: Vec<(Slot, Place)> =
            found.filter_map(|found| place(&self.settings, found, &mut names)).collect();
        // Two ports of the same name cannot be told apart.
        let mut series = BTreeSet::new();
        placed.retain(|(slot, _)| series.insert((slot.definition.name(), slot.labels.clone())));
        let (slots, places): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        let missing = places.is_empty().then(|| "the device has no value that a metric names".to_owned());
        let mut values = lock(&self.values);
        if *values.slots != slots || *values.places != places || values.missing != missing {
            let serves: BTreeSet<&str> = slots.iter().filter_map(served_by).collect();
            let serves = Arc::new(serves.into_iter().map(str::to_owned).collect());
            *values = KnownValues { slots: slots.into(), places: places.into(), serves, missing };
            self.changes.note(&self.settings.name);
        }
    }

    /// Reads the wanted values of `places` into the slots of the same numbers. May block.
    pub(super) fn read(&self, places: &[Place], reading: &mut Reading) -> Outcome {
        let mut state = lock(&self.state);
        if clock::monotonic_ns() < state.retry_ns {
            return Outcome::Retry(state.errno.unwrap_or(Errno::HOSTDOWN));
        }
        let wanted: Vec<(u32, &Place)> =
            (0..).zip(places).filter(|(slot, _)| reading.is_wanted(*slot)).collect();
        let addresses: Vec<&str> = wanted.iter().map(|(_, place)| &*place.address).collect();
        let mut numbers = vec![None; wanted.len()];
        let read = state.connection(self).and_then(|connection| connection.read(&addresses, &mut numbers));
        if let Err(error) = read {
            state.fail(self, &error);
            return Outcome::Retry(error.errno());
        }
        state.succeed(self);
        drop(state);
        for ((slot, place), number) in wanted.iter().zip(numbers) {
            if let Some(bits) = number.and_then(|number| place.bits(number)) {
                reading.set(*slot, bits);
            }
        }
        Outcome::Read
    }
}

impl State {
    fn connection(&mut self, device: &Device) -> Result<&mut dyn Connection, DeviceError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&device.settings, &device.root)?,
        };
        Ok(&mut **self.connection.insert(connection))
    }

    fn end(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.end();
        }
    }

    fn succeed(&mut self, device: &Device) {
        if std::mem::take(&mut self.failures) > 0 {
            info!("device {} answers again", device.settings.name);
        }
        self.retry_ns = 0;
    }

    /// Drops the connection, and waits ever longer until the next attempt.
    fn fail(&mut self, device: &Device, error: &DeviceError) {
        if self.failures == 0 {
            warn!("cannot read device {}: {error}; it is tried again within a minute", device.settings.name);
        }
        self.end();
        self.errno = Some(error.errno());
        let wait_ns = BACK_OFF_NS.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        self.retry_ns = clock::monotonic_ns().saturating_add(wait_ns);
        // What it has may be different when it returns.
        self.searched_ns = None;
    }
}

impl Place {
    /// Bits of the stored value; none for a count that is negative or no number.
    fn bits(&self, number: Number) -> Option<u64> {
        match (self.of_type, number) {
            (DeviceValue::Count | DeviceValue::Count32, Number::Whole(count)) => Some(count),
            (DeviceValue::Count | DeviceValue::Count32, Number::Double(_)) => None,
            (DeviceValue::Gauge | DeviceValue::Sum, _) => {
                let value = number.to_f64() * self.factor;
                value.is_finite().then(|| value.to_bits())
            }
        }
    }
}

/// Node that a value is about.
fn served_by(slot: &Slot) -> Option<&str> {
    slot.labels.get(NODE)
}

/// Returns the series of a value, and how it is read. Series of one metric share its name in `names`.
fn place(device: &DeviceSettings, found: Found, names: &mut BTreeSet<Arc<str>>) -> Option<(Slot, Place)> {
    let metric = device.metrics.get(found.metric)?;
    let factor = found.factor * metric.scale.factor();
    let is_counter = metric.is_counter.unwrap_or(found.of_type != DeviceValue::Gauge);
    // Only of whole numbers can one be told from its wrapped one.
    let is_whole = matches!(found.of_type, DeviceValue::Count | DeviceValue::Count32)
        && factor.to_bits() == 1_f64.to_bits();
    let of_type = match (is_counter, is_whole) {
        (false, _) => DeviceValue::Gauge,
        (true, true) => found.of_type,
        (true, false) => DeviceValue::Sum,
    };
    let unit = match &metric.unit {
        Some(DeviceUnit::Known(unit)) => *unit,
        Some(DeviceUnit::Other(_)) => Unit::Labelled,
        None => found.unit,
    };
    let mut definition = of_device(&device.word, metric.name.as_str(), unit, of_type)?;
    if let Some(name) = &mut definition.instance {
        match names.get(name) {
            Some(known) => *name = Arc::clone(known),
            None => drop(names.insert(Arc::clone(name))),
        }
    }
    let labels = Labels::escaped(labels(device, metric, &found)).ok()?;
    Some((Slot { definition, labels }, Place { address: found.address.into(), of_type, factor }))
}

fn labels(device: &DeviceSettings, metric: &DeviceMetric, found: &Found) -> Vec<(String, String)> {
    let mut labels = vec![("device".to_owned(), device.name.as_str().to_owned())];
    if let Some(DeviceUnit::Other(unit)) = &metric.unit {
        labels.push(("unit".to_owned(), unit.clone()));
    }
    match (&metric.label, &*found.labels) {
        (Some(key), [(_, value)]) => labels.push((key.clone(), value.clone())),
        (_, others) => labels.extend(others.iter().cloned()),
    }
    labels.retain(|(_, value)| !value.is_empty());
    // A value that names a job is no value of the other jobs of a node, also where the job is not known.
    if device.job_label.as_ref().is_some_and(|of| !name_job(of, &mut labels)) {
        return labels;
    }
    let node = found.labels.iter().find_map(|(_, value)| device.nodes.get(value)).or(device.node.as_ref());
    if let Some(node) = node.filter(|_| labels.iter().all(|(key, _)| key != NODE)) {
        labels.push((NODE.to_owned(), node.as_str().to_owned()));
    }
    labels
}

/// Replaces the label of a job, if there is one, by the job's id and cluster. Returns false if its value has
/// no id of a job.
fn name_job(of: &JobLabel, labels: &mut Vec<(String, String)>) -> bool {
    let exported = format!("exported_{}", of.label);
    let Some(at) = labels.iter().position(|(key, _)| *key == of.label || *key == exported) else {
        return true;
    };
    let Some(job_id) = labels.get(at).and_then(|(_, value)| of.job_id(value)) else { return false };
    labels.remove(at);
    labels.push((JOB_LABEL.to_owned(), job_id));
    let cluster = of.cluster.as_ref().map(|cluster| cluster.as_str().to_owned());
    labels.extend(cluster.map(|cluster| (JOB_CLUSTER_LABEL.to_owned(), cluster)));
    true
}

/// Devices of the configuration, by their words in metric names.
#[derive(Debug, Default)]
pub struct OutsideDevices {
    all: BTreeMap<String, Arc<Device>>,
    changes: Arc<Changes>,
}

impl OutsideDevices {
    /// Takes over other devices, and keeps the state of those whose settings are the same, but for periods.
    pub fn update(&mut self, devices: &[DeviceSettings], root: &Path) {
        let mut former = std::mem::take(&mut self.all);
        for settings in devices {
            let known = former.remove(&settings.word).filter(|known| known.settings.is_same_device(settings));
            let device = known.unwrap_or_else(|| {
                self.changes.note(&settings.name);
                Arc::new(Device::new(settings.clone(), root, Arc::clone(&self.changes)))
            });
            self.all.insert(settings.word.clone(), device);
        }
        former.values().for_each(|removed| self.changes.note(&removed.settings.name));
        drop(end(former.into_values()));
    }

    pub(in crate::sources) fn iter(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.all.values()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number that is another one when devices or their values have changed.
    pub fn version(&self) -> u64 {
        self.changes.version.load(Acquire)
    }

    /// Takes the names of the devices that were added, removed or have got other values since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<Identifier> {
        std::mem::take(&mut *lock(&self.changes.names))
    }

    pub(in crate::sources) fn get(&self, name: &Identifier) -> Option<&Arc<Device>> {
        let device = self.all.get(&DeviceSettings::word_of(name.as_str()))?;
        (device.settings.name == *name).then_some(device)
    }

    /// Returns those of the wanted metrics that no device of the configuration has.
    pub(crate) fn lacking<'a>(&self, wanted: &'a [Definition]) -> impl Iterator<Item = &'a Definition> {
        wanted.iter().filter(|definition| {
            let Some((word, value)) = definition.instance.as_ref().and_then(|of| of.split_once('.')) else {
                return false;
            };
            let device = self.all.get(word);
            !device.is_some_and(|of| of.settings.metrics.iter().any(|metric| metric.name.as_str() == value))
        })
    }

    /// Nodes that the devices serve, also behind ports that are not found yet.
    pub fn served_nodes(&self) -> BTreeSet<String> {
        let mut served = BTreeSet::new();
        for device in self.all.values() {
            let configured = device.settings.nodes.values().chain(&device.settings.node);
            served.extend(configured.map(ToString::to_string));
            served.extend(device.known().serves.iter().cloned());
        }
        served
    }

    /// Metrics of devices that serve one of `nodes`, each with the shortest of the samplings whose selectors
    /// name it. A metric of many outlets or ports counts as a whole.
    pub fn metrics_for(
        &self,
        nodes: &BTreeSet<String>,
        wanted: &[(Selector, Sampling)],
    ) -> Vec<(Selector, Sampling)> {
        let mut metrics: BTreeMap<String, Sampling> = BTreeMap::new();
        for device in self.all.values() {
            let KnownValues { slots, serves, .. } = device.known();
            if serves.is_disjoint(nodes) {
                continue;
            }
            let serving =
                slots.iter().filter(|slot| served_by(slot).is_some_and(|node| nodes.contains(node)));
            let names: BTreeSet<String> = serving.map(|slot| slot.definition.name().to_string()).collect();
            for name in names {
                let fitting = wanted.iter().filter(|(selector, _)| selector.matches(&name));
                if let Some(sampling) = fitting.map(|(_, sampling)| *sampling).min() {
                    metrics.insert(name, sampling);
                }
            }
        }
        metrics.into_iter().filter_map(|(name, sampling)| Some((name.parse().ok()?, sampling))).collect()
    }
}

impl Drop for OutsideDevices {
    /// Waits for a moment, so that devices know that their sessions have ended.
    fn drop(&mut self) {
        let until_ns = clock::monotonic_ns().saturating_add(END_NS);
        for thread in end(std::mem::take(&mut self.all).into_values()) {
            while !thread.is_finished() && clock::monotonic_ns() < until_ns {
                clock::sleep(END_STEP);
            }
        }
    }
}

/// Ends the connections of devices, each in a thread: one may hang.
fn end(devices: impl Iterator<Item = Arc<Device>>) -> Vec<JoinHandle<()>> {
    let thread = |device: Arc<Device>| {
        std::thread::Builder::new().stack_size(END_STACK_BYTES).spawn(move || device.end()).ok()
    };
    devices.filter_map(thread).collect()
}

/// Changes of devices and of their values.
#[derive(Debug, Default)]
pub(super) struct Changes {
    version: AtomicU64,
    /// Devices whose sources must be opened or closed.
    names: Mutex<BTreeSet<Identifier>>,
}

impl Changes {
    fn note(&self, name: &Identifier) {
        lock(&self.names).insert(name.clone());
        self.version.fetch_add(1, Release);
    }
}

#[cfg(test)]
mod tests;
