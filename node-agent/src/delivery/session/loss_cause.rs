//! The causes of losses in the outbox.

/// The cause for which frames are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossCause {
    /// The outbox is full.
    NoRoom,
    /// The collector refuses a frame.
    Refused,
}
