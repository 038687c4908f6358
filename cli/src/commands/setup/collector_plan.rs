//! `polymeter setup collector`.

use polymeter_collector::config::Endpoint;
use polymeter_store::StoreUrl;

use super::actions::Plan;
use super::common::{CONFIGURATION, Common, STATE};
use super::file::{Setting, quoted};
use super::{create_database, file};
use crate::failure::Failure;

const EXAMPLE: &str = include_str!("../../../../deploy/collector.toml");

const SQLITE: &str = "sqlite:/var/lib/polymeter/store.db";

const API_SOCKET: &str = "/run/polymeter/api.sock";

/// Store in a server on this machine, as which the service's user authenticates by its name.
const POSTGRES: &str = "host=/run/postgresql dbname=polymeter user=polymeter";

#[derive(Debug, clap::Args)]
pub(super) struct CollectorOptions {
    /// The store: `sqlite` for a file in /var/lib/polymeter, `postgres` for the PostgreSQL server of this
    /// machine, whose role and database are created, or the URL of an existing database.
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,

    /// The address for agents. Default: tcp://0.0.0.0:7717 with keys, tcp://127.0.0.1:7717 without.
    #[arg(long, value_name = "ENDPOINT")]
    listen: Option<String>,

    /// Make keys, so that agents of other machines can connect, encrypted and authenticated.
    #[arg(long)]
    keys: bool,

    /// Let users of other machines ask at tcp://0.0.0.0:7718, authenticated by MUNGE.
    #[arg(long)]
    munge: bool,

    /// Serve the pages and the HTTP API to the users of this machine, who reach them by ssh.
    #[arg(long)]
    api: bool,

    /// The user that reports how jobs ended: that of the scheduler's controller, such as slurm or oar.
    #[arg(long, value_name = "USER")]
    scheduler_user: Option<String>,

    /// Enable and start the service.
    #[arg(long)]
    enable: bool,

    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) fn plan(options: &CollectorOptions) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    plan.directory(CONFIGURATION, false);
    plan.directory(STATE, true);
    let store = match options.store.as_str() {
        "sqlite" => SQLITE,
        "postgres" => POSTGRES,
        url => url,
    };
    let standard = if options.keys { "tcp://0.0.0.0:7717" } else { "tcp://127.0.0.1:7717" };
    let listen = options.listen.as_deref().unwrap_or(standard);
    check(store, listen, options.keys)?;
    let mut settings: Vec<Setting> = vec![
        ("listen", quoted(listen)),
        ("store", quoted(store)),
        ("control_socket", quoted("/run/polymeter/collector.sock")),
    ];
    if options.keys {
        plan.directory(&format!("{CONFIGURATION}/agents.d"), false);
        plan.keys(CONFIGURATION, "collector");
        settings.push(("key", quoted(&format!("{CONFIGURATION}/collector.key"))));
        settings.push(("authorised_agents", quoted(&format!("{CONFIGURATION}/agents.d"))));
    }
    if options.munge {
        settings.push(("auth", quoted("munge")));
        settings.push(("control_listen", quoted("tcp://0.0.0.0:7718")));
    }
    settings.extend(options.scheduler_user.as_ref().map(|user| ("scheduler_user", quoted(user))));
    if options.api {
        settings.push(("api.listen", quoted(API_SOCKET)));
    }
    file::add(&mut plan, &format!("{CONFIGURATION}/collector.toml"), EXAMPLE, &settings)?;
    if store == POSTGRES {
        create_database::add(&mut plan)?;
    }
    plan.enable("polymeter-collector", options.enable);
    if options.keys {
        plan.closing
            .push("Nodes need the collector's public key, and the collector those of the nodes:".to_owned());
        plan.closing.push(format!("  scp {CONFIGURATION}/collector.pub NODE:{CONFIGURATION}/"));
        plan.closing
            .push("  ssh NODE polymeter setup node --keys --collector tcp://COLLECTOR:7717 --yes".to_owned());
        plan.closing.push(format!("  scp NODE:{CONFIGURATION}/NODE.pub {CONFIGURATION}/agents.d/"));
    }
    if options.api {
        let host = rustix::system::uname();
        plan.closing.push(
            "The pages, for everyone who may log in here; ssh tells the collector who it is:".to_owned(),
        );
        plan.closing.push(format!("  ssh -N -L 7719:{API_SOCKET} {}", host.nodename().to_string_lossy()));
        plan.closing.push("  http://localhost:7719/".to_owned());
        plan.closing
            .push("Without ssh: a web server that signs users in, see docs/how-to/sign-in.md".to_owned());
    }
    plan.closing.push("Then: polymeter doctor".to_owned());
    Ok(plan)
}

/// Checks values that would make the configuration invalid, or reveal a password to its readers.
fn check(store: &str, listen: &str, has_keys: bool) -> Result<(), Failure> {
    let url: StoreUrl = store.parse().map_err(|error| Failure::Usage(format!("--store: {error}")))?;
    if url.has_password() {
        return Err(Failure::Usage(
            "--store: all users can read collector.toml; leave the password out, and write it into /var/lib/polymeter/.pgpass"
                .to_owned(),
        ));
    }
    let endpoint: Endpoint = listen.parse().map_err(|error| Failure::Usage(format!("--listen: {error}")))?;
    if !endpoint.is_local() && !has_keys {
        return Err(Failure::Usage(format!(
            "--listen: other machines can reach {listen}, and the collector requires keys for that; add --keys"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_configuration_contains_the_settings() {
        for key in [
            "listen",
            "store",
            "control_socket",
            "key",
            "authorised_agents",
            "auth",
            "control_listen",
            "scheduler_user",
        ] {
            assert!(
                EXAMPLE
                    .lines()
                    .take_while(|line| !line.starts_with('['))
                    .any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = "))),
                "{key}"
            );
        }
    }
}
