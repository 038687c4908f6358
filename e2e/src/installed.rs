//! A machine on which Polymeter is installed, for one test: `/etc`, `/run`, `/var/lib` and the network are
//! private, so that the programs use their standard paths and ports, and it has no devices of this machine
//! that need rights. The kernel removes everything when the test and its programs have ended.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::daemons::Daemon;
use crate::namespaces::Namespaces;
use crate::{TestEnvironment, program, wait_until};

pub const SERVICE_UID: u32 = 64_010;

/// Mounts the private directories. The first argument is the directory of the units.
const SCRIPT: &str = r#"
mkdir /tmp/polymeter-etc.$$
mount -t tmpfs -o mode=755 tmpfs /tmp/polymeter-etc.$$
cp -a /etc/. /tmp/polymeter-etc.$$
mount --move /tmp/polymeter-etc.$$ /etc
rmdir /tmp/polymeter-etc.$$
rm -rf /etc/slurm /etc/oar /etc/polymeter /etc/systemd/system/polymeter*
sed -i '/^polymeter:/d' /etc/passwd /etc/group
echo 'polymeter:x:64010:64010::/var/lib/polymeter:/usr/sbin/nologin' >>/etc/passwd
echo 'polymeter:x:64010:' >>/etc/group
cp "$1"/*.service /etc/systemd/system/
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755,size=4g tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /sys/class
power=/sys/bus/event_source/devices/power
[ ! -e $power ] || mount -t tmpfs tmpfs $power
for device in /dev/ipmi0 /dev/ipmi/0 /dev/ipmidev/0; do
    [ ! -e $device ] || mount --bind /dev/null $device
done
ip link set lo up
"#;

pub struct InstalledMachine {
    pub env: TestEnvironment,
    namespaces: Namespaces,
}

impl InstalledMachine {
    pub fn new() -> Self {
        let env = TestEnvironment::new();
        fs::set_permissions(env.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
        let namespaces = Namespaces::create(&["--mount", "--net"], SCRIPT, &[units.as_os_str()]).unwrap();
        Self { env, namespaces }
    }

    /// Wraps a command so that it runs on the machine. The wrapper becomes the program and keeps its pid.
    pub fn within(&self, command: &Command) -> Command {
        self.namespaces.within(command)
    }

    pub fn shell(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-ec", script]);
        let output = self.within(&command).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn polymeter(&self, arguments: &[&str]) -> Output {
        let mut command = program("polymeter");
        command.args(arguments).env_remove("POLYMETER_COLLECTOR").env_remove("SLURM_CONF");
        self.within(&command).stdin(Stdio::null()).output().unwrap()
    }

    pub fn polymeter_as_nobody(&self, arguments: &[&str]) -> Output {
        let mut command = as_user("65534", "");
        command.arg(program("polymeter").get_program()).args(arguments);
        command.env_remove("POLYMETER_COLLECTOR").env_remove("SLURM_CONF");
        self.within(&command).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a daemon as the service's user, with ambient capabilities such as `+sys_nice`.
    pub fn start(&self, name: &str, capabilities: &str) -> Daemon {
        self.shell("install -d -o polymeter -g polymeter /run/polymeter");
        let mut command = as_user("64010", capabilities);
        command.arg(program(name).get_program()).env_remove("JOURNAL_STREAM");
        Daemon::of(&self.env, self.within(&command))
    }

    /// Report of `polymeter doctor`, and the checks with problems and warnings.
    pub fn doctor(&self, arguments: &[&str]) -> (Value, Vec<String>) {
        let output = self.polymeter(&[&["doctor", "--json"], arguments].concat());
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let found = serious(&report);
        let has_problem = found.iter().any(|finding| finding.starts_with("problem "));
        assert_eq!(output.status.code(), Some(i32::from(has_problem)), "{report:#}");
        (report, found)
    }

    /// Answers each connection to `address` with `greeting`, as a collector does, until the test ends.
    pub fn greet_at(&self, address: &'static str, greeting: impl Fn() -> String + Send + 'static) {
        let network = File::open(format!("/proc/{}/ns/net", self.namespaces.pid())).unwrap();
        let listener = thread::scope(|scope| {
            scope
                .spawn(|| {
                    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                    TcpListener::bind(address).unwrap()
                })
                .join()
                .unwrap()
        });
        thread::spawn(move || {
            for stream in listener.incoming() {
                stream.and_then(|mut stream| stream.write_all(greeting().as_bytes())).ok();
            }
        });
    }

    pub fn wait_until_connected(&self, wanted: bool) {
        wait_until("the agent knows the state of its connection", || {
            let output = self.polymeter(&["status", "--json"]);
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["collector"]["connected"] == wanted
        });
    }
}

/// Problems and warnings of a report, as `LEVEL CHECK`, without repetitions.
pub fn serious(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let mut found: Vec<String> = findings
        .filter(|finding| finding["level"] == "problem" || finding["level"] == "warning")
        .map(|finding| {
            assert!(is_one_line(finding, "text") && is_one_line(finding, "remedy"), "{finding}");
            format!("{} {}", finding["level"].as_str().unwrap(), finding["check"].as_str().unwrap())
        })
        .collect();
    found.dedup();
    found
}

fn is_one_line(finding: &Value, key: &str) -> bool {
    finding[key].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n'))
}

fn as_user(user: &str, capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    if !capabilities.is_empty() {
        command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
    }
    command
}
