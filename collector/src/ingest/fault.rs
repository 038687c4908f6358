//! What is wrong with a frame or an entry of a dictionary.

use super::id_table::IdTable;

/// The reason for which a frame or an entry cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It refers to an unknown id, which a dictionary may announce.
    Unknown(&'static str),
    /// It contradicts itself or earlier entries, and no dictionary helps.
    Contradiction(&'static str),
    /// The session has announced more than [`crate::limits::SESSION_DICTIONARY_BYTES`].
    Full,
}

/// The fault of an id that is announced again and differs.
pub(super) const AGAIN: Fault = Fault::Contradiction("an id was announced again with another definition");

/// Adds `new` to a table under `id`. Returns true if it was unknown before.
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
