//! Failure of a command because of its store.

use polymeter_service::log::chain;
use polymeter_store::StoreError;

use crate::failure::Failure;

/// Failure of `action`, such as "cannot read the store". An error that is a whole sentence is left as it is.
pub(crate) fn store_failure(action: &str, error: &StoreError) -> Failure {
    let remedy = if error.is_unreachable() {
        "; check the address of the store, and that its server runs"
    } else if error.is_disk_full() {
        "; make room on the disk of the store, and repeat the command"
    } else {
        ""
    };
    let text = chain(error) + remedy;
    Failure::Failed(if text.starts_with("cannot ") { text } else { format!("{action}: {text}") })
}

pub(crate) fn cannot_read(error: StoreError) -> Failure {
    store_failure("cannot read the store", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_not_repeated() {
        let older = store_failure("cannot read the store", &StoreError::OlderSchema { found: 0 }).to_string();
        assert!(older.starts_with("cannot read the store: its schema version 0 is older"), "{older}");
        let missing = StoreError::Unusable("no such file".to_owned());
        assert_eq!(
            store_failure("cannot read the store", &missing).to_string(),
            "cannot read the store: no such file"
        );
    }
}
