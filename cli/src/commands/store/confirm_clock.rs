//! `polymeter store confirm-clock`: states that the clock of a store is right.

use polymeter_service::time_text::rfc3339;
use polymeter_store::{Administration, ClockJump};
use serde::Serialize;

use crate::client::store_choice::StoreChoice;
use crate::failure::Failure;
use crate::output::terminal;
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
pub(crate) struct ConfirmClockArguments {
    #[command(flatten)]
    store: StoreChoice,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Confirmed {
    /// Time by which rows become old from now on.
    time: String,
    /// Time by which they did before.
    before: String,
}

pub(super) fn execute(arguments: &ConfirmClockArguments) -> Result<(), Failure> {
    let url = arguments.store.resolve()?;
    let ClockJump { accepted_us, now_us } = Administration::open(&url)
        .and_then(|mut store| store.confirm_clock())
        .map_err(|error| store_failure("cannot confirm the clock of the store", &error))?;
    let confirmed = Confirmed { time: rfc3339(now_us), before: rfc3339(accepted_us) };
    if arguments.json {
        return terminal::print_json(&confirmed);
    }
    let Confirmed { time, before } = confirmed;
    terminal::print(&format!(
        "old rows are removed by the time {time} from now on; before it was {before}\nThe collector notices it within a minute.\n"
    ))
}
