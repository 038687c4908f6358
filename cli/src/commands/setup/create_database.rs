//! The role and the database of a PostgreSQL server on this machine, by the peer authentication of its
//! superuser.

use super::actions::{Plan, command_as};

/// The superuser of the server.
const SUPERUSER: &str = "postgres";

/// The directory of its sockets.
const SOCKETS: &str = "/run/postgresql";

/// The name of the role and of the database, which is that of the service's user.
const NAME: &str = "polymeter";

/// Adds the steps that create the role and the database.
pub(super) fn add(plan: &mut Plan) {
    let has_role = finds(&format!("SELECT 1 FROM pg_roles WHERE rolname = '{NAME}'"));
    plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, NAME], has_role);
    let has_database = finds(&format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'"));
    plan.run(Some(SUPERUSER), &["createdb", "-h", SOCKETS, "-O", NAME, NAME], has_database);
}

/// Returns true if a query has a row. A server that does not answer has none: the step that follows tells
/// why.
fn finds(select: &str) -> bool {
    let words = ["psql", "-h", SOCKETS, "-XtAc", select, "postgres"].map(str::to_owned);
    let output = command_as(Some(SUPERUSER), &words).and_then(|mut command| command.output());
    output.is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"1"))
}
