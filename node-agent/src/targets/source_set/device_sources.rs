//! Sources of devices outside the nodes. One is opened anew when its device has got other values; the others,
//! of which there may be a thousand with hundreds of series each, do not notice.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::DEVICE_KIND;
use polymeter_proto::period::Period;

use super::SourceSet;
use crate::sources::{Opened, Unavailable};
use crate::targets::open_source::{OpenSource, SessionIds, SourceChanges, SourceOwner};

/// What was opened for one device, and what it lacks: neither for one that was removed.
pub(crate) type OpenedDevice = (Vec<Opened>, Vec<Unavailable>);

impl SourceSet {
    /// Replaces the sources of some devices, by the names of the sources.
    pub(crate) fn commit_devices(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        devices: BTreeMap<String, OpenedDevice>,
    ) -> SourceChanges {
        let mut changes = SourceChanges::default();
        let (mut former, mut all) = (BTreeMap::new(), Vec::new());
        self.dormant.retain(|dormant| !devices.contains_key(&dormant.name));
        for (name, (opened, unavailable)) in devices {
            let replaced = self.open.remove(&name);
            let sampled: BTreeSet<String> = replaced.iter().flat_map(OpenSource::metrics).collect();
            let missing: Vec<_> = reasons(unavailable.iter()).collect();
            changes.missing.extend(missing.iter().filter(|(metric, _)| sampled.contains(metric)).cloned());
            former.extend(replaced.map(|replaced| (name.clone(), replaced)));
            self.missing_of_devices.insert(name, missing);
            all.extend(opened);
        }
        self.missing_of_devices.retain(|_, missing| !missing.is_empty());
        self.replace(ids, owner, all, former, false, &mut changes);
        changes
    }

    /// Notes the wanted metrics that no device has.
    pub(crate) fn set_lacking(&mut self, lacking: &[Unavailable]) {
        self.missing_of_devices.insert(DEVICE_KIND.to_owned(), reasons(lacking.iter()).collect());
    }

    /// Metrics of the sources of these names, each with its source and its refresh interval.
    pub(crate) fn sampled_by<'a>(
        &'a self,
        sources: &'a BTreeSet<String>,
    ) -> BTreeMap<String, Vec<(&'a str, Option<Period>)>> {
        let open = sources.iter().filter_map(|name| Some((name.as_str(), self.open.get(name)?)));
        let metrics = open.flat_map(|(name, source)| {
            source.metrics().map(move |metric| (metric, vec![(name, source.refresh_interval)]))
        });
        metrics.collect()
    }
}

fn reasons<'a>(missing: impl Iterator<Item = &'a Unavailable>) -> impl Iterator<Item = (String, String)> {
    missing.map(|missing| (missing.definition.name(), missing.reason.clone()))
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue;
    use polymeter_proto::series::Labels;

    use super::*;
    use crate::lanes::{Command, SourceId};
    use crate::plan::{Layer, Plan, Rule};
    use crate::sources::{CustomSource, Devices, Outcome, Reading, Slot, Source};
    use crate::targets::key::TargetKey;

    /// A source of slots that is never read.
    #[derive(Debug)]
    struct Slots(Vec<Slot>);

    impl CustomSource for Slots {
        fn slots(&self) -> &[Slot] {
            &self.0
        }

        fn read(&mut self, _: &mut Reading) -> Outcome {
            Outcome::Read
        }
    }

    const SERIES: usize = 100;

    fn opened(name: &str, metrics: &[String], series: usize) -> Opened {
        let labels = |number: usize| Labels::new(vec![("port".to_owned(), number.to_string())]).unwrap();
        let slot = |metric: &String, number| Slot {
            definition: catalogue::find(metric).unwrap(),
            labels: labels(number),
        };
        let slots = metrics.iter().flat_map(|metric| (0..series).map(move |number| slot(metric, number)));
        let source = Source::Custom(Box::new(Slots(slots.collect())));
        Opened { name: name.to_owned(), source, step: None, below: None, devices: Devices::default() }
    }

    /// Metrics `x` and `y` of a device.
    fn metrics(word: &str) -> [String; 2] {
        ["x", "y"].map(|metric| format!("device.{word}.{metric}"))
    }

    fn device(word: &str, series: usize) -> (String, OpenedDevice) {
        let name = format!("device/{word}");
        let opened = opened(&name, &metrics(word), series);
        (name, (vec![opened], Vec::new()))
    }

    /// Sources of the node, and its plan.
    #[derive(Default)]
    struct Node {
        set: SourceSet,
        ids: SessionIds,
        plan: Plan,
    }

    impl Node {
        /// Returns a node whose devices `words` and one file are open.
        fn of_devices(words: &[&str]) -> Self {
            let mut node = Self::default();
            node.set_periods(words, "15s");
            node.commit_files(true);
            let changes = node.commit(words.iter().map(|word| device(word, SERIES)).collect());
            assert_eq!(exchanged(&changes).1.len(), words.len());
            node
        }

        fn set_periods(&mut self, words: &[&str], period: &str) {
            let periods = words.iter().flat_map(|word| metrics(word)).map(|name| (name, period.parse().ok()));
            let cpu = Rule { selector: "node.load1".parse().unwrap(), sampling: "1s".parse().ok() };
            self.plan.baseline = Layer::new(vec![cpu]).with_devices(periods);
        }

        fn commit(&mut self, devices: BTreeMap<String, OpenedDevice>) -> SourceChanges {
            let key: TargetKey = None;
            let owner = SourceOwner { key: &key, job: None, plan: &self.plan };
            self.set.commit_devices(&mut self.ids, owner, devices)
        }

        /// Follows the plan, and opens the file anew if `is_anew`.
        fn commit_files(&mut self, is_anew: bool) -> SourceChanges {
            let key: TargetKey = None;
            let definitions = self.plan.definitions(catalogue::Scope::Node);
            let wanted = self.set.wanted((Vec::new(), definitions), None, false, is_anew);
            assert!(wanted.definitions.iter().all(|definition| !definition.metric.is_of_kind(DEVICE_KIND)));
            let file = is_anew.then(|| opened("proc/loadavg", &["node.load1".to_owned()], 1));
            let owner = SourceOwner { key: &key, job: None, plan: &self.plan };
            self.set.commit(&mut self.ids, owner, wanted, file.into_iter().collect(), Vec::new())
        }

        fn id(&self, name: &str) -> SourceId {
            self.set.open()[name].id
        }
    }

    /// Sources that the only command removes and adds.
    fn exchanged(changes: &SourceChanges) -> (Vec<SourceId>, Vec<SourceId>) {
        let [Command::Exchange { removed, added }] = changes.commands.as_slice() else {
            panic!("{:?}", changes.commands)
        };
        (removed.clone(), added.iter().map(|(id, _)| *id).collect())
    }

    #[test]
    fn a_change_of_one_device_leaves_all_other_sources_alone() {
        let mut node = Node::of_devices(&["a", "b", "c"]);
        let ids = ["device/a", "device/b", "device/c", "proc/loadavg"].map(|name| node.id(name));
        let changes = node.commit(BTreeMap::from([device("b", SERIES + 1)]));
        assert_eq!(exchanged(&changes), (Vec::new(), vec![ids[1]]), "its tally continues");
        assert_eq!(["device/a", "device/b", "device/c", "proc/loadavg"].map(|name| node.id(name)), ids);
        assert_eq!(node.set.open()["device/b"].slots.len(), 2 * (SERIES + 1));
        let names = BTreeSet::from(["device/b".to_owned()]);
        let sampled = node.set.sampled_by(&names);
        assert_eq!(sampled.keys().cloned().collect::<Vec<_>>(), metrics("b"));
    }

    #[test]
    fn files_that_are_opened_anew_are_not_devices() {
        let mut node = Node::of_devices(&["a", "b"]);
        let file = node.id("proc/loadavg");
        assert_eq!(exchanged(&node.commit_files(true)), (Vec::new(), vec![file]));
        assert_eq!(node.commit_files(false).commands.len(), 0, "the plan is the same");
    }

    #[test]
    fn another_period_regroups_the_sources_that_have_it() {
        let mut node = Node::of_devices(&["a", "b"]);
        let periods = [("a", "15s"), ("b", "2s")];
        let of_devices = periods.iter().flat_map(|(word, period)| {
            metrics(word).into_iter().map(|name| (name, period.parse().ok())).collect::<Vec<_>>()
        });
        node.plan.baseline = Layer::new(node.plan.baseline.rules().to_vec()).with_devices(of_devices);
        let changes = node.commit_files(false);
        let [Command::Regroup(id, groups)] = changes.commands.as_slice() else {
            panic!("{:?}", changes.commands)
        };
        assert_eq!((*id, groups.len()), (node.id("device/b"), 1));
        assert_eq!(groups[0].period(), "2s".parse().unwrap());
        assert_eq!(node.commit_files(false).commands.len(), 0);
        // All of one is switched off, and on again.
        node.set_periods(&["b"], "2s");
        let off = node.commit_files(false);
        assert!(matches!(off.commands.as_slice(), [Command::Regroup(_, groups)] if groups.is_empty()));
        node.set_periods(&["a", "b"], "2s");
        let on = node.commit_files(false);
        assert!(matches!(on.commands.as_slice(), [Command::Regroup(_, groups)] if groups.len() == 1));
    }

    #[test]
    fn a_device_comes_and_goes_and_says_what_it_lacks() {
        let mut node = Node::of_devices(&["a", "b"]);
        let id = node.id("device/b");
        let lacks = |reason: &str| {
            metrics("b")
                .map(|metric| Unavailable::for_good(catalogue::find(&metric).unwrap(), reason.to_owned()))
        };
        // It is there, without values.
        let silent = (vec![opened("device/b", &[], 0)], lacks("b: it is gone").to_vec());
        let changes = node.commit(BTreeMap::from([("device/b".to_owned(), silent)]));
        assert_eq!(exchanged(&changes), (vec![id], Vec::new()));
        let reasons = metrics("b").map(|metric| (metric, "b: it is gone".to_owned()));
        assert_eq!(changes.missing, reasons);
        assert_eq!((node.set.dormant().len(), node.set.open().len()), (1, 2));
        node.commit_files(true);
        assert_eq!(node.set.unavailable().cloned().collect::<Vec<_>>(), reasons, "also when files change");
        assert_eq!(node.set.dormant().len(), 1);
        let still = (vec![opened("device/b", &[], 0)], lacks("b: it is off").to_vec());
        let changes = node.commit(BTreeMap::from([("device/b".to_owned(), still)]));
        assert!(changes.commands.is_empty() && changes.missing.is_empty(), "{changes:?}");
        assert_eq!((node.set.dormant().len(), node.set.unavailable().count()), (1, 2));
        // It returns, and is then removed from the configuration.
        let changes = node.commit(BTreeMap::from([device("b", SERIES)]));
        assert_eq!(exchanged(&changes).1.len(), 1);
        assert_eq!((node.set.dormant().len(), node.set.unavailable().count()), (0, 0));
        let gone = BTreeMap::from([("device/b".to_owned(), (Vec::new(), Vec::new()))]);
        assert_eq!(exchanged(&node.commit(gone)).0.len(), 1);
        assert_eq!(node.set.open().keys().collect::<Vec<_>>(), ["device/a", "proc/loadavg"]);
    }
}
