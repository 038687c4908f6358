//! Source of stored data: a store, or the collector that writes to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_client::connection::agent::{JOB_VARIABLE, STORE_VARIABLE};
use polymeter_client::connection::collector::Collector;
use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_proto::control::ReadAccess;
use polymeter_service::clock;
use polymeter_store::reader::Read;
use polymeter_store::{StoreError, StoreUrl};

use super::dead_runs;
use super::remote_reader::RemoteReader;
use crate::failure::Failure;
use crate::store_failure::cannot_read;

/// Read if neither an option nor a configuration names a source.
pub(super) const DEFAULT_FILE: &str = "polymeter.db";

/// Together 5 s.
const FIRST_SAMPLES_PAUSE: Duration = Duration::from_millis(100);
const FIRST_SAMPLES_TRIES: u32 = 50;

/// Options of a command that reads stored data.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReadSource {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE. Default: the collector; without one,
    /// sqlite:polymeter.db.
    #[arg(long, value_name = "STORE")]
    store: Option<StoreUrl>,

    /// Read through this collector: tcp://HOST:PORT, or its socket. Default: POLYMETER_COLLECTOR,
    /// /etc/polymeter/client.toml, or the collector of this machine.
    #[arg(long, value_name = "COLLECTOR", conflicts_with = "store")]
    collector: Option<CollectorEndpoint>,

    /// The socket of munged, if it is not munge's default.
    #[arg(long, value_name = "PATH", conflicts_with = "store")]
    munge_socket: Option<PathBuf>,
}

pub(crate) struct Source {
    pub(crate) reader: Box<dyn Read>,
    /// Name without a password.
    pub(crate) name: String,
    is_remote: bool,
    pub(crate) visible: Visible,
    /// Job of the `polymeter run` around this command, if the source is its file.
    pub(crate) of_run: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visible {
    All,
    /// A database may hide the jobs of others, a collector does.
    Own,
}

impl ReadSource {
    /// None for the configured collector.
    pub(crate) fn of(store: Option<StoreUrl>) -> Self {
        Self { store, ..Self::default() }
    }

    pub(crate) const fn is_given(&self) -> bool {
        self.store.is_some() || self.collector.is_some() || self.munge_socket.is_some()
    }

    /// Opens the source of a job: within a `polymeter run` its file, if no source is given and no other job
    /// is wanted.
    pub(crate) fn open_for(&self, wanted: Option<&str>) -> Result<Source, Failure> {
        let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        let of_run = variable(JOB_VARIABLE).and_then(|job| job.into_string().ok());
        match (of_run, variable(STORE_VARIABLE)) {
            (Some(job), Some(file)) if !self.is_given() && wanted.is_none_or(|wanted| wanted == job) => {
                let source = Source::of_run(&StoreUrl::sqlite(PathBuf::from(file)), &job)?;
                Ok(Source { of_run: Some(job), ..source })
            }
            _ => self.open(),
        }
    }

    pub(crate) fn collector_options(&self) -> (Option<&CollectorEndpoint>, Option<&Path>) {
        (self.collector.as_ref(), self.munge_socket.as_deref())
    }

    pub(crate) fn open(&self) -> Result<Source, Failure> {
        if let Some(store) = &self.store {
            return Source::of_store(store);
        }
        if let Some(collector) = Collector::find(self.collector.as_ref(), self.munge_socket.as_deref())? {
            return Source::of_collector(&collector);
        }
        if Path::new(DEFAULT_FILE).exists() {
            return Source::of_store(&StoreUrl::sqlite(DEFAULT_FILE));
        }
        Err(Failure::NotRunning(format!(
            "cannot find stored jobs: no collector is configured, and there is no {DEFAULT_FILE} here; name the collector with --collector, POLYMETER_COLLECTOR or /etc/polymeter/client.toml, or a store with --store"
        )))
    }
}

impl Source {
    /// Text for messages.
    pub(crate) const fn place(&self) -> &'static str {
        if self.is_remote { "the collector's store" } else { "the store" }
    }

    /// A collector shows the series of nodes to administrators only.
    pub(crate) fn hides_nodes(&self) -> bool {
        self.is_remote && self.visible == Visible::Own
    }

    pub(crate) fn of_store(store: &StoreUrl) -> Result<Self, Failure> {
        let reader = dead_runs::open(store).map_err(cannot_read)?;
        // A user with read access to a file can read all of it. A database may hide the jobs of others.
        let sees_all = rustix::process::geteuid().is_root() || store.file().is_some();
        let visible = if sees_all { Visible::All } else { Visible::Own };
        Ok(Self {
            reader: Box::new(reader),
            name: store.to_string(),
            is_remote: false,
            visible,
            of_run: None,
        })
    }

    /// Waits a while for the first samples of the job.
    fn of_run(store: &StoreUrl, job: &str) -> Result<Self, Failure> {
        let mut source = Self::of_store(store)?;
        for _ in 0..FIRST_SAMPLES_TRIES {
            if source.has_samples(job).map_err(cannot_read)? {
                break;
            }
            clock::sleep(FIRST_SAMPLES_PAUSE);
            source = Self::of_store(store)?;
        }
        Ok(source)
    }

    /// The record of a run is stored before its samples.
    fn has_samples(&mut self, job: &str) -> Result<bool, StoreError> {
        let Some(job) = self.reader.last_job(Some(job))? else { return Ok(false) };
        Ok(!self.reader.job_metrics(job.job_key, None)?.is_empty())
    }

    pub(crate) fn of_collector(collector: &Collector) -> Result<Self, Failure> {
        let (reader, access) = RemoteReader::connect(collector)?;
        let visible = match access {
            ReadAccess::All => Visible::All,
            ReadAccess::Own => Visible::Own,
        };
        let name = collector.name();
        Ok(Self { reader: Box::new(reader), name, is_remote: true, visible, of_run: None })
    }
}
