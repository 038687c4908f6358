//! The choice of a stored job by its id.

use polymeter_proto::suggest::similar;
use polymeter_store::StoreUrl;
use polymeter_store::reader::{JobRow, Read};

use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::store_failure::store_failure;

/// The maximum number of ids that a refusal suggests.
const SUGGESTIONS: usize = 3;

/// Returns the last of the jobs with the id `wanted`, or the last job if no id is wanted.
pub(crate) fn choose(
    reader: &mut dyn Read,
    wanted: Option<&str>,
    store: &StoreUrl,
) -> Result<JobRow, Failure> {
    let failed = |error| store_failure("cannot read the store", &error);
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
    let similar = similar(wanted, ids.iter().map(String::as_str)).into_iter().take(SUGGESTIONS);
    let similar: Vec<String> = similar.map(|id| format!("`{}`", printable_name(id))).collect();
    let suggestion =
        if similar.is_empty() { String::new() } else { format!("; did you mean {}?", similar.join(" or ")) };
    let wanted = printable_name(wanted);
    Err(Failure::Failed(format!("unknown job `{wanted}`: the store does not contain it{suggestion}")))
}
