//! Real stores: an SQLite file, or a PostgreSQL server started here with its default settings.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::process::{self, Usage};

/// User of the server when this process is root, as which PostgreSQL refuses to run.
const USER: &str = "postgres";

const SQLITE: &str = "sqlite:";

const PATIENCE_S: u64 = 60;

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// An SQLite file.
    Sqlite,
    /// A PostgreSQL server without TimescaleDB.
    Postgres,
    /// A PostgreSQL server with TimescaleDB.
    Timescaledb,
    /// A coordinator and two workers with Citus.
    Citus,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Timescaledb => "TimescaleDB",
            Self::Citus => "Citus",
        })
    }
}

impl Kind {
    /// Kinds that are one file or one server, the best one last.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Timescaledb];

    /// Names what this kind requires and this machine lacks.
    pub fn missing(self) -> Option<&'static str> {
        let binaries = match self {
            Self::Sqlite => return None,
            Self::Postgres | Self::Timescaledb | Self::Citus => binaries(),
        };
        match binaries {
            None => Some("no PostgreSQL server is installed"),
            Some(binaries) if self == Self::Timescaledb && !has_extension(&binaries, "timescaledb") => {
                Some("PostgreSQL has no TimescaleDB")
            }
            Some(binaries) if self == Self::Citus && !has_extension(&binaries, "citus") => {
                Some("PostgreSQL has no Citus")
            }
            Some(_) => None,
        }
    }

    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|kind| kind.missing().is_none()).unwrap_or(Self::Sqlite)
    }
}

/// A store in a temporary directory, or an existing one. Dropping it removes the former.
#[derive(Debug)]
pub struct Store {
    kind: Kind,
    url: String,
    // Dropped before the directory that contains its data.
    server: Option<Server>,
    workers: Vec<Server>,
    /// `None` for an existing store.
    directory: Option<TempDir>,
}

#[derive(Debug)]
struct Server {
    binaries: PathBuf,
    directory: PathBuf,
    port: u16,
    process: Child,
}

impl Store {
    /// Creates an empty store and starts its server, if it has one.
    pub fn start(kind: Kind) -> Result<Self, Box<dyn Error>> {
        if let Some(missing) = kind.missing() {
            return Err(format!("{kind}: {missing}").into());
        }
        let directory = tempfile::tempdir()?;
        let server_in = |name: &str| Server::start(&directory.path().join(name), kind);
        let server = if kind == Kind::Sqlite { None } else { Some(server_in("server")?) };
        let workers =
            if kind == Kind::Citus { vec![server_in("worker1")?, server_in("worker2")?] } else { Vec::new() };
        let url = match &server {
            None => format!("{SQLITE}{}/store.db", directory.path().display()),
            Some(Server { directory, port, .. }) => {
                format!("host={} port={port} user=postgres dbname=postgres", directory.display())
            }
        };
        let store = Self { kind, url, server, workers, directory: Some(directory) };
        store.add_workers()?;
        Ok(store)
    }

    /// Uses the existing store at `url`: an SQLite file, which may be missing, or a database of a running
    /// server.
    pub fn existing(url: &str) -> Result<Self, Box<dyn Error>> {
        let mut store = Self {
            kind: Kind::Sqlite,
            url: url.to_owned(),
            server: None,
            workers: Vec::new(),
            directory: None,
        };
        if store.path().is_none() {
            store.kind = Kind::Postgres;
            if store.ask("SHOW shared_preload_libraries")?.contains("timescaledb") {
                store.kind = Kind::Timescaledb;
            }
        }
        Ok(store)
    }

    pub const fn kind(&self) -> Kind {
        self.kind
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn path(&self) -> Option<&Path> {
        self.url.strip_prefix(SQLITE).map(Path::new)
    }

    pub fn file(&self) -> Result<&Path, Box<dyn Error>> {
        Ok(self.path().ok_or("a server has no file")?)
    }

    /// Configuration lines with which a collector uses this store as its kind.
    pub fn configuration(&self) -> String {
        let use_of = |kind| if self.kind == kind { "require" } else { "off" };
        let (timescaledb, citus) = (use_of(Kind::Timescaledb), use_of(Kind::Citus));
        format!("store = \"{}\"\ntimescaledb = \"{timescaledb}\"\ncitus = \"{citus}\"\n", self.url())
    }

    /// Resource usage of the server; zeros if it was not started here. Of Citus, the CPU time of all servers.
    pub fn usage(&self) -> io::Result<Usage> {
        let mut sum = Usage::default();
        for server in self.server.iter().chain(&self.workers) {
            let usage = process::usage_with_children(server.process.id())?;
            if self.workers.is_empty() {
                return Ok(usage);
            }
            sum.cpu_s += usage.cpu_s;
        }
        Ok(sum)
    }

    /// Stops the server immediately, as a failure of its machine would.
    pub fn fail(&mut self) -> Result<(), Box<dyn Error>> {
        let server = self.server.as_mut().ok_or("SQLite has no server")?;
        // The exit status reports the immediate shutdown.
        process::end(&mut server.process, Signal::QUIT, PATIENCE_S);
        Ok(())
    }

    /// Starts the server again, which replays its log.
    pub fn recover(&mut self) -> Result<(), Box<dyn Error>> {
        self.directory.as_ref().ok_or("the server was not started here")?;
        let server = self.server.as_mut().ok_or("SQLite has no server")?;
        server.process = Server::run(&server.binaries, &server.directory, server.port)?;
        Ok(())
    }

    fn add_workers(&self) -> Result<(), Box<dyn Error>> {
        let Some(coordinator) = self.server.as_ref().filter(|_| self.kind == Kind::Citus) else {
            return Ok(());
        };
        for worker in &self.workers {
            worker.ask("CREATE EXTENSION citus")?;
        }
        self.ask("CREATE EXTENSION citus")?;
        self.ask(&format!("SELECT citus_set_coordinator_host('127.0.0.1', {})", coordinator.port))?;
        for worker in &self.workers {
            self.ask(&format!("SELECT citus_add_node('127.0.0.1', {})", worker.port))?;
        }
        self.ask("CREATE EXTENSION citus_columnar").map(drop)
    }

    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    pub fn psql_of_workers(&self) -> impl Iterator<Item = Command> {
        self.workers.iter().map(Server::psql)
    }

    /// CPU time of the server in seconds and, of Citus, that of each worker behind it.
    pub fn cpu_s_of_servers(&self) -> io::Result<Vec<f64>> {
        let servers = self.server.iter().chain(&self.workers);
        servers.map(|server| Ok(process::usage_with_children(server.process.id())?.cpu_s)).collect()
    }

    pub fn kill_worker(&mut self, number: usize) -> Result<(), Box<dyn Error>> {
        let worker = self.workers.get_mut(number).ok_or("there is no such worker")?;
        worker.process.kill()?;
        worker.process.wait()?;
        Ok(())
    }

    /// Starts a killed worker again, as soon as its processes have noticed the death of the server.
    pub fn start_worker(&mut self, number: usize) -> Result<(), Box<dyn Error>> {
        let Server { binaries, directory, port, process } =
            self.workers.get_mut(number).ok_or("there is no such worker")?;
        *process = crate::clock::wait_for("the worker starts again", PATIENCE_S, || {
            Server::run(binaries, directory, *port).ok()
        })?;
        Ok(())
    }

    pub fn ask_workers(&self, sql: &str) -> Result<Vec<String>, Box<dyn Error>> {
        self.workers.iter().map(|worker| worker.ask(sql)).collect()
    }

    pub fn samples(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.ask("SELECT count(*) FROM samples")?.parse()?)
    }

    /// Size of the samples on the disk, with indexes; of SQLite the whole file.
    pub fn bytes(&self) -> Result<u64, Box<dyn Error>> {
        let sql = match self.kind {
            Kind::Sqlite => return Ok(fs::metadata(self.file()?)?.len()),
            Kind::Postgres => "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('samples')",
            Kind::Timescaledb => "SELECT hypertable_size('samples')",
            Kind::Citus => "SELECT sum(size) FROM citus_shard_sizes()",
        };
        Ok(self.ask(sql)?.parse()?)
    }

    pub fn ask(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        if let Some(path) = self.path() {
            let number: i64 = rusqlite::Connection::open(path)?.query_row(sql, [], |row| row.get(0))?;
            return Ok(number.to_string());
        }
        answer(self.psql()?, sql)
    }

    /// Runs a query whose result is a single column of texts, and returns its rows.
    pub fn lines(&self, sql: &str) -> Result<Vec<String>, Box<dyn Error>> {
        if let Some(path) = self.path() {
            let connection = rusqlite::Connection::open(path)?;
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            return Ok(rows.collect::<Result<_, _>>()?);
        }
        Ok(self.ask(sql)?.lines().map(ToOwned::to_owned).collect())
    }

    pub fn psql(&self) -> Result<Command, Box<dyn Error>> {
        if self.path().is_some() {
            return Err("SQLite has no server".into());
        }
        let binaries = binaries().ok_or("no PostgreSQL server is installed")?;
        let mut command = as_postgres(&binaries.join("psql"));
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.url]).current_dir("/");
        Ok(command)
    }
}

impl Server {
    fn start(directory: &Path, kind: Kind) -> Result<Self, Box<dyn Error>> {
        let binaries = binaries().ok_or("no PostgreSQL server is installed")?;
        // The server runs as another user.
        fs::create_dir(directory)?;
        for directory in directory.parent().into_iter().chain([directory]) {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777))?;
        }
        let port = match kind {
            Kind::Citus => std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            Kind::Sqlite | Kind::Postgres | Kind::Timescaledb => 5432,
        };
        let data = directory.join("data");
        let made = as_postgres(&binaries.join("initdb"))
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-D"])
            .arg(&data)
            .current_dir(directory)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(format!("initdb failed: {made}").into());
        }
        let mut settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nport = {port}\nlog_min_messages = fatal\n",
            directory.display()
        );
        if kind == Kind::Citus {
            settings.push_str(
                "listen_addresses = '127.0.0.1'\nshared_preload_libraries = 'citus'\nmax_connections = 200\n\
                 max_prepared_transactions = 200\ncitus.enable_statistics_collection = off\n",
            );
        }
        if kind == Kind::Timescaledb {
            settings
                .push_str("shared_preload_libraries = 'timescaledb'\ntimescaledb.telemetry_level = off\n");
        }
        fs::write(data.join("postgresql.auto.conf"), settings)?;
        let process = Self::run(&binaries, directory, port)?;
        Ok(Self { binaries, directory: directory.to_owned(), port, process })
    }

    /// Runs the server on the data in `directory` and waits until it answers.
    fn run(binaries: &Path, directory: &Path, port: u16) -> Result<Child, Box<dyn Error>> {
        let mut process = as_postgres(&binaries.join("postgres"))
            .arg("-D")
            .arg(directory.join("data"))
            .current_dir(directory)
            // Connections between servers look for certificates there.
            .env("HOME", directory)
            .stderr(File::create(directory.join("log"))?)
            .spawn()?;
        let mut probe = as_postgres(&binaries.join("pg_isready"));
        probe.args(["-q", "-h"]).arg(directory).current_dir("/");
        probe.args(["-p", &port.to_string()]);
        let up = crate::clock::wait_for("the server answers", PATIENCE_S, || {
            // A server that ends again does not answer.
            let is_up = probe.status().is_ok_and(|status| status.success());
            (is_up || process.try_wait().is_ok_and(|ended| ended.is_some())).then_some(is_up)
        });
        if let Err(error) = up.and_then(|is_up| if is_up { Ok(()) } else { Err("the server ended".into()) }) {
            process::end(&mut process, Signal::QUIT, PATIENCE_S);
            return Err(error);
        }
        Ok(process)
    }
}

impl Server {
    fn psql(&self) -> Command {
        let mut psql = as_postgres(&self.binaries.join("psql"));
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]).arg(&self.directory);
        psql.args(["-p", &self.port.to_string(), "-d", "postgres"]).current_dir("/");
        psql
    }

    fn ask(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        answer(self.psql(), sql)
    }
}

fn answer(mut psql: Command, sql: &str) -> Result<String, Box<dyn Error>> {
    let output = psql.args(["-c", sql]).output()?;
    if !output.status.success() {
        return Err(format!("{sql}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        // An immediate shutdown: the data are not needed any more.
        process::end(&mut self.process, Signal::QUIT, PATIENCE_S);
    }
}

fn as_postgres(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program);
    command
}

fn binaries() -> Option<PathBuf> {
    let debian = (13..=18).rev().map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian.chain(std::env::split_paths(&path)).find(|directory| directory.join("initdb").is_file())
}

fn has_extension(binaries: &Path, name: &str) -> bool {
    let output = Command::new(binaries.join("pg_config")).arg("--sharedir").output();
    let share = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // Nix installs no pg_config with the server.
    let shares = [PathBuf::from(share.trim()), binaries.join("../share/postgresql")];
    shares.iter().any(|share| share.join(format!("extension/{name}.control")).is_file())
}
