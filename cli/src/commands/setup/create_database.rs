//! Role and database of a PostgreSQL server on this machine, by the peer authentication of its
//! superuser.

use polymeter_store::STORE_ROLES;

use super::actions::{Plan, command_as};
use crate::failure::Failure;

const SUPERUSER: &str = "postgres";

const SOCKETS: &str = "/run/postgresql";

/// Role and database have the name of the service's user.
const NAME: &str = "polymeter";

/// Exists on every server.
const ANY_DATABASE: &str = "postgres";

/// Finds a store whose roles have no rights yet: the collector, which may not create roles, made it before
/// there were any.
const LACKS_RIGHTS: &str = "SELECT 1 FROM pg_proc WHERE proname = 'polymeter_create_roles'
     AND coalesce(NOT has_table_privilege(to_regrole('polymeter_reader')::oid, to_regclass('jobs')::oid, 'SELECT'), true)";

fn has_role(name: &str) -> bool {
    answer(ANY_DATABASE, &format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'")).is_some()
}

/// Adds the steps that create the roles and the database. Fails if there is a database of that name that
/// cannot hold all names.
pub(super) fn add(plan: &mut Plan) -> Result<(), Failure> {
    plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, NAME], has_role(NAME));
    for role in STORE_ROLES {
        plan.run(Some(SUPERUSER), &["createuser", "-h", SOCKETS, "--no-login", role], has_role(role));
    }
    let select = format!("SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = '{NAME}'");
    let encoding = answer(ANY_DATABASE, &select);
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
    let grant = ["psql", "-h", SOCKETS, "-XtAqc", "SELECT polymeter_create_roles()", NAME];
    plan.run(Some(SUPERUSER), &grant, answer(NAME, LACKS_RIGHTS).is_none());
    Ok(())
}

/// First answer to a query; none without a row. A server that does not answer has none: the step that follows
/// tells why.
fn answer(database: &str, select: &str) -> Option<String> {
    let words = ["psql", "-h", SOCKETS, "-XtAc", select, database].map(str::to_owned);
    let output = command_as(Some(SUPERUSER), &words).and_then(|mut command| command.output()).ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Some(text).filter(|text| output.status.success() && !text.is_empty())
}
