//! Apache, which `make test-api` extracts from Debian's packages, with the configuration of the documents.

use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_test_harness::servers;

use crate::daemons::Daemon;
use crate::nginx::{NGINX_USER, password};
use crate::{TestEnvironment, wait_until};

const DOCUMENT: &str = include_str!("../../docs/how-to/api.md");

/// Documents the configuration of the portal.
const SIGN_IN: &str = include_str!("../../docs/how-to/sign-in.md");

/// Files that the configuration names.
const SOCKET: &str = "/run/polymeter/api.sock";
const USERS: &str = "/etc/apache2/users";

/// Modules that Debian's package does not build in: those that are always enabled, and those that the
/// document names.
const MODULES: [&str; 10] = [
    "mpm_event",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_user",
    "auth_basic",
    "headers",
    "proxy",
    "proxy_http",
    "reqtimeout",
];

fn program() -> PathBuf {
    servers::root().join("usr/sbin/apache2")
}

pub(crate) fn missing() -> Option<String> {
    let version = Command::new(program()).arg("-v").env("LD_LIBRARY_PATH", servers::libraries()).output();
    let is_there = version.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "Apache is missing; `make test-api` extracts it".to_owned())
}

pub struct Apache {
    daemon: Daemon,
    pub address: String,
    errors: PathBuf,
}

impl Apache {
    /// Starts it with the configuration of the document. Each user's password is the name spelled backwards.
    pub fn start(env: &TestEnvironment, socket: &Path, users: &[&str]) -> Self {
        let (_, rest) = DOCUMENT.split_once("```apache\n").unwrap();
        Self::with_site(env, socket, users, rest.split_once("```").unwrap().0)
    }

    /// Starts it with the document's directives for Open OnDemand, but with passwords in place of the
    /// portal's own authentication.
    pub fn start_portal(env: &TestEnvironment, socket: &Path, users: &[&str]) -> Self {
        let (_, rest) = SIGN_IN.split_once("custom_vhost_directives:\n").unwrap();
        let lines = rest.split_once("```").unwrap().0.lines();
        let directives = lines.map(|line| line.strip_prefix("  - '").unwrap().strip_suffix('\'').unwrap());
        let site: String = directives.map(|line| format!("{line}\n")).collect();
        assert!(site.contains("AuthType openid-connect"), "{site}");
        let passwords = format!("AuthType Basic\nAuthName portal\nAuthUserFile {USERS}");
        Self::with_site(env, socket, users, &site.replace("AuthType openid-connect", &passwords))
    }

    fn with_site(env: &TestEnvironment, socket: &Path, users: &[&str], site: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let (directory, passwords) = (env.path("apache"), env.path("users"));
        fs::create_dir(&directory).unwrap();
        let lines = users.iter().map(|user| format!("{user}:{}\n", hash(&password(user))));
        fs::write(&passwords, lines.collect::<String>()).unwrap();
        for expected in [SOCKET, USERS] {
            assert!(site.contains(expected), "{expected}: {site}");
        }
        let site = site
            .replace(SOCKET, &socket.display().to_string())
            .replace(USERS, &passwords.display().to_string());
        let errors = directory.join("errors");
        let mut text = format!(
            "ServerRoot {directory}\nDefaultRuntimeDir {directory}\nPidFile {directory}/pid\nErrorLog {errors}\n\
             ServerName localhost\nListen {address}\nUser {NGINX_USER}\nGroup {NGINX_USER}\n",
            directory = directory.display(),
            errors = errors.display(),
        );
        let modules = servers::root().join("usr/lib/apache2/modules");
        for module in MODULES {
            let path = modules.join(format!("mod_{module}.so"));
            writeln!(text, "LoadModule {module}_module {}", path.display()).unwrap();
        }
        let config = env.path("apache.conf");
        fs::write(&config, text + &site).unwrap();
        let mut command = Command::new(program());
        command.env("LD_LIBRARY_PATH", servers::libraries()).arg("-DFOREGROUND").arg("-f").arg(&config);
        let server = Self { daemon: Daemon::of(env, command), address, errors };
        wait_until("Apache listens", || TcpStream::connect(&server.address).is_ok());
        server
    }

    pub fn end(self) -> String {
        self.daemon.terminate() + &fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

fn hash(password: &str) -> String {
    let output = Command::new("openssl")
        .args(["passwd", "-apr1", password])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
