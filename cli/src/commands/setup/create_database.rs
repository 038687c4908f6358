//! The role and the database of a PostgreSQL server on this machine, by the peer authentication of its
//! superuser.

use super::actions::{Plan, command_as};
use crate::failure::Failure;

/// The superuser of the server.
const SUPERUSER: &str = "postgres";

/// The directory of its sockets.
const SOCKETS: &str = "/run/postgresql";

/// The name of the role and of the database, which is that of the service's user.
const NAME: &str = "polymeter";

/// Adds the steps that create the role and the database.
///
/// # Errors
/// Returns an error if there is a database of that name that cannot hold all names.
pub(super) fn add(plan: &mut Plan) -> Result<(), Failure> {
    let has_role = answer(&format!("SELECT 1 FROM pg_roles WHERE rolname = '{NAME}'")).is_some();
    plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, NAME], has_role);
    let encoding =
        answer(&format!("SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = '{NAME}'"));
    if let Some(other) = encoding.as_deref().filter(|encoding| *encoding != "UTF8") {
        return Err(Failure::Failed(format!(
            "cannot use the database {NAME}: its encoding is {other}, and names may have any characters; rename or drop it, and run setup again"
        )));
    }
    // Whatever the encoding and the locale of the server.
    let utf8 = ["-E", "UTF8", "--locale=C", "-T", "template0"];
    let createdb: Vec<&str> =
        ["createdb", "-h", SOCKETS, "-O", NAME].into_iter().chain(utf8).chain([NAME]).collect();
    plan.run(Some(SUPERUSER), &createdb, encoding.is_some());
    Ok(())
}

/// Returns the answer to a query; none without a row. A server that does not answer has none: the step that
/// follows tells why.
fn answer(select: &str) -> Option<String> {
    let words = ["psql", "-h", SOCKETS, "-XtAc", select, "postgres"].map(str::to_owned);
    let output = command_as(Some(SUPERUSER), &words).and_then(|mut command| command.output()).ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Some(text).filter(|text| output.status.success() && !text.is_empty())
}
