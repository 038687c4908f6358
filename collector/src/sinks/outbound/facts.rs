//! Facts of a job that are labels of a series of their own.

use polymeter_proto::exposition::LabelSet;

/// Empty ones are unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::sinks) struct Facts {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) partition: String,
    pub(super) account: String,
    pub(super) display_id: String,
}

impl Facts {
    /// Names and values of the labels.
    pub(in crate::sinks) fn labels(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("cluster", &self.cluster),
            ("user", &self.user),
            ("uid", &self.uid),
            ("name", &self.name),
            ("partition", &self.partition),
            ("account", &self.account),
            ("display_id", &self.display_id),
        ];
        all.into_iter().map(|(name, value)| (name, value.clone())).collect()
    }

    /// Adds the facts to the labels that all series of the job have.
    pub(super) fn added_to(&self, mut labels: LabelSet) -> LabelSet {
        for (name, value) in self.labels() {
            labels.add(name, &value);
        }
        labels
    }
}

pub(super) fn set(fact: &mut String, value: Option<impl ToString>) {
    if let Some(value) = value {
        *fact = value.to_string();
    }
}
