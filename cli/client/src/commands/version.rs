//! `polymeter --version`.

use crate::failure::Failure;
use crate::local::Local;
use crate::output::terminal;
use crate::version::Version;

pub(crate) fn execute(json: bool, local: Option<&Local>) -> Result<(), Failure> {
    let version = Version::of_this_program(local.map(|local| (local.version)()));
    if json {
        return terminal::print_json(&version);
    }
    terminal::print(&format!("{} {}\n", version.program, version.version))
}
