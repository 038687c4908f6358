//! The agent of Net-SNMP (`snmpd`), with objects of devices that this machine is not.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use crate::TestEnvironment;
use crate::daemons::Daemon;

const PROGRAM: &str = "/usr/sbin/snmpd";

pub(crate) fn missing() -> Option<String> {
    (!Path::new(PROGRAM).exists()).then(|| "snmpd is missing; `make test-deps` installs it".to_owned())
}

pub struct Snmpd {
    _daemon: Daemon,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl Snmpd {
    /// Starts it with this configuration, besides its address. Its state is in the environment's directory.
    pub fn start(env: &TestEnvironment, name: &str, configuration: &str) -> Self {
        let address = free_address();
        let (config, state) = (env.path(&format!("{name}.conf")), env.path(name));
        fs::create_dir(&state).unwrap();
        fs::write(&config, format!("agentaddress udp:{address}\n{configuration}")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["-f", "-Le", "-C", "-c"]).arg(&config).env("SNMP_PERSISTENT_DIR", &state);
        command.arg("-p").arg(state.join("pid")).env("MIBS", "");
        Self { _daemon: Daemon::of(env, command), address }
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> String {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
