//! `polymeter setup login`.

use polymeter_client::connection::configuration::CollectorEndpoint;

use super::actions::Plan;
use super::common::{CONFIGURATION, Common};
use super::file::{self, quoted};
use crate::failure::Failure;

const EXAMPLE: &str = include_str!("../../../../deploy/client.toml");

#[derive(Debug, clap::Args)]
pub(super) struct LoginOptions {
    /// The collector's address for users, tcp://HOST:PORT (`control_listen`), or the path of its
    /// `control_socket`.
    #[arg(long, value_name = "COLLECTOR")]
    collector: CollectorEndpoint,

    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) fn plan(options: &LoginOptions) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    plan.directory(CONFIGURATION, false);
    let settings = [("collector", quoted(&options.collector.to_string()))];
    file::add(&mut plan, &format!("{CONFIGURATION}/client.toml"), EXAMPLE, &settings)?;
    if matches!(options.collector, CollectorEndpoint::Tcp(_)) {
        plan.closing.push(
            "Users are authenticated by MUNGE: this machine needs munged with the cluster's key.".to_owned(),
        );
    }
    plan.closing.push("Then: polymeter doctor --role login".to_owned());
    Ok(plan)
}
