//! Machine under examination: its roles, its configurations and its running daemons. What several checks
//! need is read once.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};

use polymeter_agent::config::AgentConfig;
use polymeter_client::connection::agent::{ask, ask_status, unexpected};
use polymeter_client::connection::collector::Collector;
use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_collector::CollectorConfig;
use polymeter_proto::control::{Answer, MetricLine, MetricsRequest, Request, StatusReport, StatusRequest};
use polymeter_service::cgroup_mounts::Mounts;
use polymeter_service::document::Faults;
use polymeter_service::log::chain;
use polymeter_service::users;
use polymeter_store::StoreError;

use super::process::Daemon;
use super::role::Role;
use super::store_state::StoreState;
use super::unit::Unit;
use crate::failure::Failure;
use crate::local_config::collector_config;

const USERS_PORT: u16 = 7718;

pub(super) const AGENT_UNIT: &str = "polymeter-agent";

pub(super) const COLLECTOR_UNIT: &str = "polymeter-collector";

pub(super) struct Machine {
    pub(super) roles: Vec<Role>,
    pub(super) is_root: bool,
    pub(super) mounts: Mounts,
    pub(super) agent: Configured<AgentConfig>,
    pub(super) collector: Configured<CollectorConfig>,
    pub(super) agent_unit: Option<Unit>,
    pub(super) collector_unit: Option<Unit>,
    daemon: OnceCell<Option<Daemon>>,
    status: OnceCell<Result<StatusReport, Failure>>,
    metrics: OnceCell<Result<Vec<MetricLine>, Failure>>,
    store: OnceCell<Result<StoreState, Unexamined>>,
}

/// Content of a configuration file, or its faults.
pub(super) struct Configured<T> {
    pub(super) path: PathBuf,
    pub(super) content: Result<T, Faults>,
}

impl<T> Configured<T> {
    pub(super) fn valid(&self) -> Option<&T> {
        self.content.as_ref().ok()
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Unexamined {
    #[error("only root {others}may {action}", others = match uid {
        0 => String::new(),
        uid => format!("and the user {} ", user_name(*uid)),
    })]
    NeedsRoot { action: &'static str, uid: u32 },
    #[error("this system has no user {0}")]
    NoUser(String),
    #[error("the configuration has faults for {user}: {faults}", user = user_name(*uid))]
    Faults { uid: u32, faults: Faults },
    #[error("{}", chain(.0))]
    Store(StoreError),
}

impl Machine {
    pub(super) fn new(roles: Vec<Role>, agent: &Path, collector: &Path) -> io::Result<Self> {
        let root = Path::new("/");
        Ok(Self {
            roles,
            is_root: rustix::process::geteuid().is_root(),
            mounts: Mounts::read(root)?,
            agent: Configured { path: agent.to_owned(), content: agent_config(agent) },
            collector: Configured { path: collector.to_owned(), content: collector_config(collector) },
            agent_unit: Unit::read(root, AGENT_UNIT),
            collector_unit: Unit::read(root, COLLECTOR_UNIT),
            daemon: OnceCell::new(),
            status: OnceCell::new(),
            metrics: OnceCell::new(),
            store: OnceCell::new(),
        })
    }

    /// Addresses at which collectors may answer users: those of `client.toml`, else the agent's collectors at
    /// the usual port.
    pub(super) fn user_endpoints(&self) -> Vec<CollectorEndpoint> {
        if let Ok(Some(collector)) = Collector::find(None, None) {
            return collector.endpoints().to_vec();
        }
        let collectors = self.agent.valid().map(|config| config.collectors.as_slice()).unwrap_or_default();
        let hosts =
            collectors.iter().filter_map(|endpoint| endpoint.strip_prefix("tcp://")?.rsplit_once(':'));
        hosts.map(|(host, _)| CollectorEndpoint::Tcp(format!("{host}:{USERS_PORT}"))).collect()
    }

    /// None if the agent has no control socket, or its configuration is invalid.
    pub(super) fn agent_socket(&self) -> Option<&Path> {
        self.agent.valid()?.control_socket.as_deref()
    }

    pub(super) fn agent_daemon(&self) -> Option<&Daemon> {
        self.daemon.get_or_init(|| Daemon::at(self.agent_socket()?)).as_ref()
    }

    pub(super) fn status(&self) -> Option<Result<&StatusReport, &Failure>> {
        let socket = self.agent_socket().filter(|_| self.agent_daemon().is_some())?;
        Some(self.status.get_or_init(|| ask_status(socket, &Request::Status(StatusRequest {}))).as_ref())
    }

    /// Metrics as the running agent lists them, with their availability.
    pub(super) fn metrics(&self) -> Option<Result<&[MetricLine], &Failure>> {
        let socket = self.agent_socket().filter(|_| self.agent_daemon().is_some())?;
        Some(self.metrics.get_or_init(|| node_metrics(socket)).as_deref())
    }

    /// User of the running agent, else of its unit, else root, as which prologs start it.
    pub(super) fn agent_uid(&self) -> Result<u32, Unexamined> {
        self.agent_daemon().map_or_else(|| uid_of_unit(self.agent_unit.as_ref()), |daemon| Ok(daemon.uid))
    }

    /// User that its unit names, else root.
    pub(super) fn collector_uid(&self) -> Result<u32, Unexamined> {
        uid_of_unit(self.collector_unit.as_ref())
    }

    /// Calls `act` with the rights of the collector's user, and with the configuration as that user reads it:
    /// the password file of a database is that of the user.
    pub(super) fn as_collector<T: Send>(
        &self,
        action: &'static str,
        act: impl FnOnce(CollectorConfig) -> T + Send,
    ) -> Result<T, Unexamined> {
        let (uid, path) = (self.collector_uid()?, self.collector.path.as_path());
        let result = users::act_as(uid, || collector_config(path).map(act));
        let result = result.map_err(|_denied| Unexamined::NeedsRoot { action, uid })?;
        result.map_err(|faults| Unexamined::Faults { uid, faults })
    }

    /// Read with the rights of the collector's user.
    pub(super) fn store(&self) -> Result<&StoreState, &Unexamined> {
        let read = || {
            self.as_collector("examine the store", |config| {
                StoreState::read(&config.store).map_err(Unexamined::Store)
            })?
        };
        self.store.get_or_init(read).as_ref()
    }
}

fn node_metrics(socket: &Path) -> Result<Vec<MetricLine>, Failure> {
    let answer = ask(socket, &Request::Metrics(MetricsRequest { job: None }))?;
    if let Answer::Metrics(answer) = answer { Ok(answer.metrics) } else { Err(unexpected(answer)) }
}

/// Falls back to the number.
pub(super) fn user_name(uid: u32) -> String {
    users::name_of(uid).unwrap_or_else(|| uid.to_string())
}

fn uid_of_unit(unit: Option<&Unit>) -> Result<u32, Unexamined> {
    let Some(user) = unit.and_then(|unit| unit.user.as_deref()) else { return Ok(0) };
    users::uid_of(user).ok_or_else(|| Unexamined::NoUser(user.to_owned()))
}

/// Returns the agent's defaults without a file.
fn agent_config(path: &Path) -> Result<AgentConfig, Faults> {
    if path.exists() { AgentConfig::load(path) } else { Ok(AgentConfig::standard()) }
}
