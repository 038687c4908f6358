//! `polymeter setup node`.

use polymeter_agent::config::EXAMPLE;
use polymeter_proto::endpoint;

use super::actions::Plan;
use super::common::{CONFIGURATION, Common, STATE};
use super::file::{self, Setting, quoted};
use crate::commands::keygen;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct NodeOptions {
    /// The collector, tcp://HOST:PORT.
    #[arg(long, value_name = "ENDPOINT", default_value = polymeter_agent::config::DEFAULT_COLLECTOR)]
    #[arg(value_parser = polymeter_agent::config::endpoint)]
    collector: String,

    /// Make keys, which a collector on another machine requires.
    #[arg(long)]
    keys: bool,

    /// The node's name in the data, after which its keys are named. Default: this host's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Keep no spool: samples of an outage that exceed the memory are dropped.
    #[arg(long)]
    no_spool: bool,

    /// Enable and start the service. Without it, a prolog can start the agent.
    #[arg(long)]
    enable: bool,

    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) fn plan(options: &NodeOptions) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let name = keygen::key_name(options.name.as_deref())?;
    plan.directory(CONFIGURATION, false);
    plan.directory(STATE, true);
    let mut settings: Vec<Setting> = vec![("collector", quoted(&options.collector))];
    settings.extend(options.name.as_ref().map(|name| ("node", quoted(name))));
    if !options.no_spool {
        settings.push(("spool", quoted(&format!("{STATE}/spool"))));
    }
    if options.keys {
        plan.keys(CONFIGURATION, &name);
        settings.push(("key", quoted(&format!("{CONFIGURATION}/{name}.key"))));
        settings.push(("collector_key", quoted(&format!("{CONFIGURATION}/collector.pub"))));
        plan.closing
            .push("The collector needs this node's public key, and this node the collector's:".to_owned());
        plan.closing.push(format!("  scp {CONFIGURATION}/{name}.pub COLLECTOR:{CONFIGURATION}/agents.d/"));
        plan.closing.push(format!("  scp COLLECTOR:{CONFIGURATION}/collector.pub {CONFIGURATION}/"));
    } else if !endpoint::is_local(&options.collector) {
        plan.closing.push(
            "A collector on another machine requires keys (--keys), unless it has insecure = true."
                .to_owned(),
        );
    }
    file::add(&mut plan, &format!("{CONFIGURATION}/agent.toml"), EXAMPLE, &settings)?;
    plan.enable("polymeter-agent", options.enable);
    plan.closing.push("Then: polymeter doctor".to_owned());
    Ok(plan)
}
