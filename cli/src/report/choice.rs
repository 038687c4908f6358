//! The choice of a stored job by its id.

use polymeter_store::StoreUrl;
use polymeter_store::reader::{JobRow, Reader};

use crate::failure::Failure;
use crate::output::printable::printable_name;

/// The maximum number of ids that a refusal suggests.
const SUGGESTIONS: usize = 3;

/// The divisor of an id's length that gives the maximum difference of a suggested id, plus one character.
const DISTANCE_PART: usize = 3;

/// Returns the last of the jobs with the id `wanted`, or the last job if no id is wanted.
pub(crate) fn choose(reader: &mut Reader, wanted: Option<&str>, store: &StoreUrl) -> Result<JobRow, Failure> {
    let failed = |error| Failure::because("cannot read the store", &error);
    if let Some(job) = reader.last_job(wanted).map_err(failed)? {
        return Ok(job);
    }
    let Some(wanted) = wanted else {
        return Err(Failure::Failed("cannot choose a job: the store contains none".to_owned()));
    };
    let uid = rustix::process::geteuid();
    // A user with read access to a file can read all of it. A database may hide the jobs of others.
    let sees_all = uid.is_root() || store.file().is_some();
    let owner_uid = (!sees_all).then_some(i64::from(uid.as_raw()));
    let ids = reader.candidate_ids(wanted, owner_uid).map_err(failed)?;
    let similar = similar_ids(wanted, ids.iter().map(String::as_str));
    let suggestion =
        if similar.is_empty() { String::new() } else { format!("; did you mean {}?", similar.join(" or ")) };
    let wanted = printable_name(wanted);
    Err(Failure::Failed(format!("unknown job `{wanted}`: the store does not contain it{suggestion}")))
}

/// Returns the ids that are most similar to `wanted`, each once.
fn similar_ids<'a>(wanted: &str, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    let distance_max = wanted.chars().count() / DISTANCE_PART + 1;
    let mut found: Vec<(usize, &str)> = Vec::new();
    for id in ids {
        let distance = strsim::damerau_levenshtein(wanted, id);
        if distance <= distance_max && found.iter().all(|(_, known)| *known != id) {
            found.push((distance, id));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().take(SUGGESTIONS).map(|(_, id)| format!("`{}`", printable_name(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_ids_are_suggested() {
        let ids = ["4242", "4243", "4244", "4245", "91", "91", "run-7-1795177077"];
        assert_eq!(similar_ids("4241", ids.into_iter()), ["`4242`", "`4243`", "`4244`"]);
        assert_eq!(similar_ids("run-7-1795177078", ids.into_iter()), ["`run-7-1795177077`"]);
        assert_eq!(similar_ids("somebody's", ids.into_iter()), [""; 0]);
        assert_eq!(similar_ids("99", ids.into_iter()), ["`91`"]);
    }
}
