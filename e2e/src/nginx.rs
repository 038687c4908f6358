//! nginx, which `make test-api` extracts from Debian's package, with the configurations of the documents.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemons::Daemon;
use crate::{TestEnvironment, wait_until};

const DOCUMENTS: [&str; 2] =
    [include_str!("../../docs/how-to/api.md"), include_str!("../../docs/how-to/sign-in.md")];

/// Files that the configuration names.
const SOCKET: &str = "/run/polymeter/api.sock";
const USERS: &str = "/etc/nginx/polymeter.users";
const SIGN_IN: &str = "127.0.0.1:4180";

/// User of nginx in Debian's package.
pub const NGINX_USER: &str = "www-data";

/// `POLYMETER_NGINX`, or else the system's program.
fn nginx() -> PathBuf {
    std::env::var_os("POLYMETER_NGINX").map_or_else(|| PathBuf::from("nginx"), PathBuf::from)
}

pub(crate) fn missing() -> Option<String> {
    let version = Command::new(nginx()).arg("-v").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "nginx is missing; `make test-api` extracts it".to_owned())
}

/// A web server in front of the API. Its first site asks for passwords, its second one for tokens, and its
/// third one asks oauth2-proxy.
pub struct Nginx {
    daemon: Daemon,
    pub address: String,
}

impl Nginx {
    /// Starts it with the configurations of the documents, but without TLS. Each user's password is the name
    /// spelled backwards. `sign_in` is the address in place of oauth2-proxy's.
    pub fn start(env: &TestEnvironment, socket: &Path, users: &[&str], sign_in: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let passwords = env.path("users");
        let mut lines = String::new();
        for user in users {
            writeln!(lines, "{user}:{{PLAIN}}{}", password(user)).unwrap();
        }
        fs::write(&passwords, lines).unwrap();
        let blocks = DOCUMENTS.map(|document| {
            let (_, rest) = document.split_once("```nginx\n").unwrap();
            rest.split_once("```").unwrap().0
        });
        let sites = blocks.concat();
        for expected in ["listen 443 ssl;", SOCKET, USERS, SIGN_IN] {
            assert!(sites.contains(expected), "{expected}: {sites}");
        }
        let sites: String = sites
            .lines()
            .filter(|line| !line.trim_start().starts_with("ssl_certificate"))
            .fold(String::new(), |text, line| text + line + "\n");
        let sites = sites
            .replace("listen 443 ssl;", &format!("listen {address};"))
            .replace(SOCKET, &socket.display().to_string())
            .replace(USERS, &passwords.display().to_string())
            .replace(SIGN_IN, sign_in);
        let directory = env.path("nginx");
        fs::create_dir(&directory).unwrap();
        let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", directory.display()))
            .concat();
        let config = env.path("nginx.conf");
        let text = format!(
            "daemon off;\nuser {NGINX_USER};\npid {}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{sites}}}\n",
            directory.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(nginx());
        command.arg("-p").arg(&directory).arg("-e").arg("stderr").arg("-c").arg(&config);
        let daemon = Daemon::of(env, command);
        let server = Self { daemon, address };
        wait_until("nginx listens", || std::net::TcpStream::connect(&server.address).is_ok());
        server
    }

    pub fn end(self) -> String {
        self.daemon.end(rustix::process::Signal::QUIT).1
    }
}

pub fn password(user: &str) -> String {
    user.chars().rev().collect()
}
