//! A PostgreSQL server in a temporary directory, reachable over a Unix socket only, that ends with the test.
//! While [`KeptServers`] exists, a server that a test has left as it was is cleared for the next test
//! instead: that takes a third of the time.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::wait_until;

/// Servers run as this user when the tests run as root, which PostgreSQL refuses.
const USER: &str = "postgres";

/// Removes all databases and roles that tests have created.
const CLEAR: &str = r"
SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database WHERE NOT datistemplate \gexec
SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE rolname <> 'postgres' AND rolname !~ '^pg_' \gexec
ALTER ROLE postgres RESET ALL;
CREATE DATABASE postgres TEMPLATE template0;
";

/// Servers that no test uses, and whether any are kept.
static IDLE: Mutex<(bool, Vec<Server>)> = Mutex::new((false, Vec::new()));

/// Lets servers outlive their tests, until it is dropped.
pub struct KeptServers;

impl KeptServers {
    pub fn new() -> Self {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
        Self
    }
}

impl Drop for KeptServers {
    fn drop(&mut self) {
        let servers = std::mem::take(&mut *IDLE.lock().unwrap_or_else(PoisonError::into_inner));
        drop(servers);
    }
}

pub struct Server {
    binaries: PathBuf,
    directory: Arc<TempDir>,
    process: Option<Child>,
    /// Command, with arguments, that runs the server's programs. Empty: they run as they are.
    within: Vec<String>,
    /// False if more than its databases and roles may differ from those of a new server.
    is_pristine: AtomicBool,
}

impl Server {
    pub fn start(timescaledb: bool) -> Result<Self, String> {
        let binaries = binaries().ok_or("no PostgreSQL server is installed")?;
        if timescaledb && !has_timescaledb(&binaries) {
            return Err("PostgreSQL has no TimescaleDB".to_owned());
        }
        while !timescaledb && let Some(server) = Self::take_idle() {
            if server.clear() {
                return Ok(server);
            }
        }
        let mut server = Self::in_new_directory(binaries);
        server.create_data()?;
        let settings = server.directory.path().join("settings.conf");
        let mut text = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = off\nlog_min_messages = fatal\n",
            server.directory.path().display()
        );
        if timescaledb {
            text.push_str("shared_preload_libraries = 'timescaledb'\ntimescaledb.telemetry_level = off\n");
        }
        std::fs::write(&settings, text).unwrap();
        server.resume();
        server.is_pristine = AtomicBool::new(!timescaledb);
        Ok(server)
    }

    fn in_new_directory(binaries: PathBuf) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        Self { binaries, directory, process: None, within: Vec::new(), is_pristine: AtomicBool::new(false) }
    }

    fn take_idle() -> Option<Self> {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).1.pop()
    }

    /// Returns false if the server is not like a new one afterwards.
    fn clear(&self) -> bool {
        let script = self.directory.path().join("clear.sql");
        std::fs::write(&script, CLEAR).unwrap();
        let mut psql = self.client("psql");
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "template1", "-f"]).arg(script);
        let is_clear = psql.stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        self.is_pristine.store(is_clear, Relaxed);
        is_clear
    }

    fn spoil(&self) {
        self.is_pristine.store(false, Relaxed);
    }

    /// Copies the data directory that `initdb` made for an earlier test: that takes a tenth of the time.
    fn create_data(&self) -> Result<(), String> {
        let template = self.template();
        if template.join("PG_VERSION").is_file() && copy(&template, &self.data_directory()) {
            return Ok(());
        }
        let made = self
            .command("initdb")
            .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-D"])
            .arg(self.data_directory())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("initdb cannot be run: {error}"))?;
        if !made.success() {
            return Err(format!("initdb failed: {made}"));
        }
        // Other tests may do the same now: the first complete copy remains.
        let copied = template.with_extension(self.directory.path().file_name().unwrap());
        if !copy(&self.data_directory(), &copied) || std::fs::rename(&copied, &template).is_err() {
            std::fs::remove_dir_all(copied).ok();
        }
        Ok(())
    }

    /// Copy of a new data directory, beside the test program.
    fn template(&self) -> PathBuf {
        let program = std::env::current_exe().unwrap();
        let version = self.binaries.display().to_string().replace('/', "-");
        program.with_file_name(format!("data{version}-uid{}", geteuid().as_raw()))
    }

    /// Starts a standby that follows this server.
    pub fn start_standby(&self) -> Self {
        self.spoil();
        let mut standby = Self::in_new_directory(self.binaries.clone());
        let copied = standby
            .command("pg_basebackup")
            .args(["-U", "postgres", "--checkpoint=fast", "-X", "stream", "-h"])
            .arg(self.socket_directory())
            .arg("-D")
            .arg(standby.data_directory())
            .status()
            .unwrap();
        assert!(copied.success(), "{copied}");
        let text = std::fs::read_to_string(self.directory.path().join("settings.conf")).unwrap();
        let [own, other] = [&standby, self].map(|server| server.socket_directory().display().to_string());
        let primary = format!("primary_conninfo = 'host={other} user=postgres'\n");
        std::fs::write(standby.directory.path().join("settings.conf"), text.replace(&other, &own) + &primary)
            .unwrap();
        std::fs::write(standby.data_directory().join("standby.signal"), "").unwrap();
        standby.resume();
        standby
    }

    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn configure(&self, settings: &str) {
        self.spoil();
        let path = self.directory.path().join("settings.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + settings).unwrap();
    }

    pub fn authenticate(&self, rules: &str) {
        self.spoil();
        std::fs::write(self.data_directory().join("pg_hba.conf"), rules).unwrap();
    }

    pub fn give_to_server(&self, path: &Path) {
        if geteuid().is_root() {
            let done = Command::new("chown").arg(USER).arg(path).status().unwrap();
            assert!(done.success(), "{done}");
        }
    }

    pub fn restart(&mut self) {
        self.stop();
        self.resume();
    }

    /// Runs the query until its process is killed.
    pub fn start_query(&self, sql: &str) -> Child {
        self.psql(sql).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Starts a server with TimescaleDB, if it is installed.
    pub fn best() -> Result<Self, String> {
        Self::start(binaries().is_some_and(|binaries| has_timescaledb(&binaries)))
    }

    pub fn data(&self) -> PathBuf {
        self.spoil();
        self.data_directory()
    }

    fn data_directory(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Uses `command`, for example for another mount namespace, from the next start on.
    pub fn run_within(&mut self, command: Vec<String>) {
        self.spoil();
        self.within = command;
    }

    fn command(&self, program: &str) -> Command {
        let program = self.binaries.join(program).display().to_string();
        let mut words = self.within.clone();
        if geteuid().is_root() {
            words.extend(
                ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--"].map(str::to_owned),
            );
        }
        words.push(program);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.directory.path());
        command
    }

    pub fn url(&self) -> String {
        format!("host={} port={} user=postgres dbname=postgres", self.directory.path().display(), self.port())
    }

    pub fn resume(&mut self) {
        let data = self.data_directory();
        let config = format!("include = '{}'\n", self.directory.path().join("settings.conf").display());
        let path = data.join("postgresql.auto.conf");
        std::fs::write(&path, config).unwrap();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .unwrap();
        let process = self.command("postgres").arg("-D").arg(&data).stderr(log).spawn().unwrap();
        self.process = Some(process);
        wait_until("the server answers", || self.is_up());
    }

    /// Acts as a service manager does.
    pub fn resume_if_ended(&mut self) {
        let process = self.process.as_mut();
        if process.is_none_or(|process| process.try_wait().unwrap().is_some()) {
            self.resume();
        }
    }

    fn is_up(&self) -> bool {
        let mut probe = self.command("pg_isready");
        let probe = probe.args(["-q", "-p", &self.port(), "-h"]).arg(self.directory.path()).status();
        probe.is_ok_and(|status| status.success())
    }

    fn psql(&self, sql: &str) -> Command {
        let mut command = self.command("psql");
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]).arg(self.directory.path());
        command.args(["-p", &self.port(), "-c", sql, "postgres"]);
        command
    }

    fn port(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("settings.conf")).unwrap();
        let port = text.lines().rev().find_map(|line| line.strip_prefix("port = "));
        port.unwrap_or("5432").to_owned()
    }

    pub fn query(&self, sql: &str) -> String {
        let output = self.psql(sql).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Opens a session of that user.
    pub fn run_as(&self, user: &str, database: &str, sql: &str) -> Output {
        self.client("psql")
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", user, "-c", sql, database])
            .output()
            .unwrap()
    }

    /// Connects a program of PostgreSQL's clients to this server.
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.command(program);
        command.arg("-h").arg(self.directory.path()).args(["-p", &self.port()]);
        command
    }

    /// Runs as the server's user, in the server's directory.
    pub fn program(&self, program: &Path) -> Command {
        // An absolute path replaces the directory of PostgreSQL's programs.
        self.command(program.to_str().unwrap())
    }

    pub fn forget_timescaledb(&self) {
        self.spoil();
        let settings = self.directory.path().join("settings.conf");
        let text = std::fs::read_to_string(&settings).unwrap();
        let kept: String = text
            .lines()
            .filter(|line| !line.contains("timescaledb"))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(&settings, kept).unwrap();
    }

    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Writes nothing more: the next start performs recovery.
    pub fn crash(&mut self) {
        self.end(Signal::QUIT);
    }

    /// Suspends all processes: clients get no answer, and connections stay open.
    pub fn freeze(&self) {
        self.spoil();
        self.signal_all(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Signals the server, and then its child processes. The order prevents new ones.
    fn signal_all(&self, signal: Signal) {
        let Some(pid) = self.process.as_ref().and_then(|process| i32::try_from(process.id()).ok()) else {
            return;
        };
        kill_process(Pid::from_raw(pid).unwrap(), signal).ok();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // The state and the parent follow the name, which may contain any characters.
            let parent =
                stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
            if parent == Some(pid) {
                kill_process(Pid::from_raw(process).unwrap(), signal).ok();
            }
        }
    }

    fn end(&mut self, signal: Signal) {
        self.spoil();
        // A suspended process ends only after SIGCONT, or by SIGKILL.
        self.thaw();
        let Some(mut process) = self.process.take() else { return };
        if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
        process.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_pristine.load(Relaxed) && !std::thread::panicking() {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.0 {
                let (binaries, directory) = (self.binaries.clone(), Arc::clone(&self.directory));
                let (process, within) = (self.process.take(), Vec::new());
                idle.1.push(Self {
                    binaries,
                    directory,
                    process,
                    within,
                    is_pristine: AtomicBool::new(false),
                });
                return;
            }
        }
        self.end(Signal::QUIT);
    }
}

/// Keeps owners and permissions. Returns false if that fails.
fn copy(from: &Path, to: &Path) -> bool {
    Command::new("cp").arg("-a").arg(from).arg(to).status().is_ok_and(|status| status.success())
}

fn binaries() -> Option<PathBuf> {
    let debian = (13..=18).rev().map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian.chain(std::env::split_paths(&path)).find(|directory| directory.join("initdb").is_file())
}

fn has_timescaledb(binaries: &Path) -> bool {
    let output = Command::new(binaries.join("pg_config")).arg("--sharedir").output();
    let share = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // Nix has no pg_config next to the server.
    let shares = [PathBuf::from(share.trim()), binaries.join("../share/postgresql")];
    shares.iter().any(|share| share.join("extension/timescaledb.control").is_file())
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
