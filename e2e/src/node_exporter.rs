//! A real exporter of Prometheus: Debian's node_exporter.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use crate::daemons::Daemon;
use crate::{TestEnvironment, wait_until};

const PROGRAM: &str = "prometheus-node-exporter";

pub(crate) fn missing() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").output();
    let runs = output.is_ok_and(|output| output.status.success());
    (!runs).then(|| format!("{PROGRAM} cannot be run"))
}

/// Runs with few collectors and the files of [`NodeExporter::state`] until it is dropped.
pub struct NodeExporter {
    pub address: SocketAddr,
    pub daemon: Daemon,
}

impl NodeExporter {
    pub fn start(env: &TestEnvironment) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self::start_at(env, address)
    }

    pub fn start_at(env: &TestEnvironment, address: SocketAddr) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg(format!("--web.listen-address={address}"));
        command.arg("--collector.disable-defaults");
        let collectors = ["cpu", "meminfo", "stat", "textfile"];
        command.args(collectors.map(|collector| format!("--collector.{collector}")));
        let directory = env.path("exported");
        fs::create_dir_all(&directory).unwrap();
        command.arg(format!("--collector.textfile.directory={}", directory.display()));
        let daemon = Daemon::of(env, {
            command.stdout(Stdio::null());
            command
        });
        wait_until("the exporter answers", || std::net::TcpStream::connect(address).is_ok());
        Self { address, daemon }
    }

    /// States metrics of its own in the text format.
    pub fn state(env: &TestEnvironment, page: &str) {
        let directory = env.path("exported");
        fs::write(directory.join("new"), page).unwrap();
        fs::rename(directory.join("new"), directory.join("of-jobs.prom")).unwrap();
    }
}
