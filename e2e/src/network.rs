//! A private network for one test: two network namespaces and the link between them, which can be cut. The
//! machine's own network is not affected, and the addresses are the same in every test.

use std::process::Command;

use crate::namespaces::Namespaces;

/// Address of [`LinkEnd::Near`], which both namespaces can reach.
pub const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    Near,
    Far,
}

/// Two network namespaces and a link. The kernel removes them when the test and the programs in them have
/// ended.
pub struct Network {
    near: Namespace,
    far: Namespace,
}

impl Network {
    /// Fails if the machine does not permit network namespaces.
    pub fn create() -> Result<Self, String> {
        let network = Self { near: Namespace::create()?, far: Namespace::create()? };
        let far = network.far.0.pid().to_string();
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
            LinkEnd::Near => self.near.0.within(command),
            LinkEnd::Far => self.far.0.within(command),
        }
    }

    /// Drops packets without an error from now on.
    pub fn cut(&self) {
        self.near.ip(&["link", "set", "link0", "down"]).unwrap();
    }

    pub fn restore(&self) {
        self.near.ip(&["link", "set", "link0", "up"]).unwrap();
    }
}

struct Namespace(Namespaces);

impl Namespace {
    fn create() -> Result<Self, String> {
        Namespaces::create(&["--net"], "", &[]).map(Self)
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.0.within(Command::new("ip").args(arguments)).output();
        let output = output.map_err(|error| format!("nsenter cannot be run: {error}"))?;
        output
            .status
            .success()
            .then_some(())
            .ok_or_else(|| format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}
