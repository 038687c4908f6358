//! The role and the database of a PostgreSQL server on this machine, by the peer authentication of its
//! superuser.

use polymeter_store::STORE_ROLES;

use super::actions::{Plan, command_as};

/// The superuser of the server.
const SUPERUSER: &str = "postgres";

/// The directory of its sockets.
const SOCKETS: &str = "/run/postgresql";

/// The name of the role and of the database, which is that of the service's user.
const NAME: &str = "polymeter";

/// The database that every server has.
const ANY_DATABASE: &str = "postgres";

/// Finds a store whose roles have no rights yet: the collector, which may not create roles, made it before
/// there were any.
const LACKS_RIGHTS: &str = "SELECT 1 FROM pg_proc WHERE proname = 'polymeter_create_roles'
     AND coalesce(NOT has_table_privilege(to_regrole('polymeter_reader')::oid, to_regclass('jobs')::oid, 'SELECT'), true)";

/// Adds the steps that create the roles and the database.
pub(super) fn add(plan: &mut Plan) {
    let has_role =
        |name: &str| finds(ANY_DATABASE, &format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'"));
    plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, NAME], has_role(NAME));
    for role in STORE_ROLES {
        plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, "--no-login", role], has_role(role));
    }
    let has_database = finds(ANY_DATABASE, &format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'"));
    plan.run(Some(SUPERUSER), &["createdb", "-h", SOCKETS, "-O", NAME, NAME], has_database);
    let grant = ["psql", "-h", SOCKETS, "-XtAqc", "SELECT polymeter_create_roles()", NAME];
    plan.run(Some(SUPERUSER), &grant, !finds(NAME, LACKS_RIGHTS));
}

/// Returns true if a query has a row. A server that does not answer has none: the step that follows tells
/// why.
fn finds(database: &str, select: &str) -> bool {
    let words = ["psql", "-h", SOCKETS, "-XtAc", select, database].map(str::to_owned);
    let output = command_as(Some(SUPERUSER), &words).and_then(|mut command| command.output());
    output.is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"1"))
}
