//! Values of a source.

use polymeter_proto::catalogue::{Definition, Field};
use polymeter_proto::series::Labels;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub definition: Definition,
    pub labels: Labels,
}

impl Slot {
    pub(super) fn unlabelled(definition: Definition) -> Self {
        Self { definition, labels: Labels::default() }
    }
}

/// Returns one slot for each metric in a row.
pub(crate) fn runs(slots: &[Slot]) -> impl Iterator<Item = &Slot> {
    slots.chunk_by(|one, next| one.definition == next.definition).filter_map(<[Slot]>::first)
}

/// A metric that is wanted from a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// A metric or a whole family.
    pub definition: Definition,
    pub field: Field,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", definition.name())]
pub struct Unavailable {
    pub definition: Definition,
    pub reason: String,
    /// True if it may soon be available although no file appears: what provides it cannot be read now.
    pub may_recover: bool,
}

impl Unavailable {
    /// Unavailable until files appear or the wanted metrics change.
    pub(crate) const fn for_good(definition: Definition, reason: String) -> Self {
        Self { definition, reason, may_recover: false }
    }
}
