//! A private network for one test: two network namespaces and the link between them, which can be cut. The machine's own
//! network is not affected, and the addresses are the same in every test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The address of [`LinkEnd::Near`], which both namespaces can reach.
pub const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";

/// The network namespace that a program runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The namespace on this side of the link.
    Near,
    /// The namespace on the other side.
    Far,
}

/// Two network namespaces and a link. The kernel removes them when the test and the programs in them have ended.
pub struct Network {
    near: Namespace,
    far: Namespace,
}

impl Network {
    /// # Errors
    /// Returns the reason if the machine does not permit network namespaces.
    pub fn create() -> Result<Self, String> {
        let network = Self { near: Namespace::create()?, far: Namespace::create()? };
        let far = network.far.holder.id().to_string();
        let Self { near, far: other } = &network;
        near.ip(&["link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", &far])?;
        for (namespace, address) in [(near, NEAR), (other, FAR)] {
            namespace.ip(&["address", "add", &format!("{address}/30"), "dev", "link0"])?;
            namespace.ip(&["link", "set", "lo", "up"])?;
            namespace.ip(&["link", "set", "link0", "up"])?;
        }
        Ok(network)
    }

    /// Wraps `command` so that it runs in a namespace. The wrapper becomes the program and keeps its pid.
    pub fn within(&self, end: LinkEnd, command: &Command) -> Command {
        match end {
            LinkEnd::Near => self.near.within(command),
            LinkEnd::Far => self.far.within(command),
        }
    }

    /// Cuts the link: from now on packets are dropped without an error.
    pub fn cut(&self) {
        self.near.ip(&["link", "set", "link0", "down"]).unwrap();
    }

    pub fn restore(&self) {
        self.near.ip(&["link", "set", "link0", "up"]).unwrap();
    }
}

/// A network namespace.
struct Namespace {
    /// The process that keeps the namespace alive. It ends when its standard input closes, at the latest when the test
    /// ends.
    holder: Child,
}

impl Namespace {
    fn create() -> Result<Self, String> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare cannot be run: {error}"))?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let namespace = Self { holder };
        if line.is_empty() { Err("no network namespace can be made".to_owned()) } else { Ok(namespace) }
    }

    fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("nsenter");
        within.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--");
        crate::basics::wrap(within, command)
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.within(Command::new("ip").args(arguments)).output();
        let output = output.map_err(|error| format!("nsenter cannot be run: {error}"))?;
        let message = || format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        output.status.success().then_some(()).ok_or_else(message)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}
