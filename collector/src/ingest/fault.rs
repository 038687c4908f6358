//! What is wrong with a frame or an entry of a dictionary.

use super::id_table::IdTable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An id that a dictionary may announce.
    Unknown(&'static str),
    /// No dictionary helps.
    Contradiction(&'static str),
    /// Beyond [`crate::limits::SESSION_DICTIONARY_BYTES`].
    Full,
}

/// Fault of an id that is announced again and differs.
pub(super) const AGAIN: Fault = Fault::Contradiction("an id was announced again with another definition");

/// Returns true if `id` was unknown before.
pub(super) fn learn<N, V>(
    table: &mut IdTable<V>,
    id: u32,
    new: N,
    same: impl Fn(&V, &N) -> bool,
    make: impl FnOnce(N) -> V,
) -> Result<bool, Fault> {
    match table.get(id) {
        Some(known) if same(known, &new) => Ok(false),
        Some(_) => Err(AGAIN),
        None => {
            table.insert(id, make(new));
            Ok(true)
        }
    }
}
