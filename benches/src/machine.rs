//! The measured machine, which one experiment has for itself, and the measured revision.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Build description that Nix installs, relative to the program's directory.
const BUILD: &str = "../share/polymeter/build.json";

/// Keeps other experiments from this machine until the result is dropped, or the process ends.
pub fn reserve() -> io::Result<UnixListener> {
    reserve_as("polymeter-bench")
}

fn reserve_as(name: &str) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&address).map_err(|error| {
        if error.kind() != io::ErrorKind::AddrInUse {
            return error;
        }
        io::Error::other(
            "another experiment runs on this machine, and two would disturb each other; wait for its end, or \
             end it (`pgrep -a polymeter-bench` shows it)",
        )
    })
}

/// One-line description of this machine: CPUs, memory, kernel.
pub fn description() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (kernel, cpuinfo, meminfo) =
        (read("/proc/sys/kernel/osrelease"), read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory_kib: u64 = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0);
    format!(
        "{cpus} x {}, {} MiB, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        memory_kib / 1024,
        kernel.trim()
    )
}

/// Git revision of the sources, with a `+` if they have uncommitted changes. Outside of a clone it is the
/// revision in Nix's build description, or `unknown`.
pub fn revision() -> String {
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        None => built("revision").unwrap_or_else(|| "unknown".to_owned()),
        Some(revision) => {
            let changed = git(&["status", "--porcelain", "--untracked-files=no"])
                .is_none_or(|changes| !changes.is_empty());
            if changed { format!("{revision}+") } else { revision }
        }
    }
}

/// Git blob hash of `flake.lock`, or its SHA-256 from Nix's build description.
pub fn nix_lock() -> Option<String> {
    git(&["hash-object", "flake.lock"]).or_else(|| built("lock_sha256"))
}

fn built(key: &str) -> Option<String> {
    let text = fs::read_to_string(std::env::current_exe().ok()?.parent()?.join(BUILD)).ok()?;
    let build: Value = serde_json::from_str(&text).ok()?;
    Some(build.get(key)?.as_str()?.to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let output = Command::new("git").arg("-C").arg(sources).args(arguments).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_experiment_at_a_time_has_the_machine() {
        let name = format!("polymeter-bench-{}", std::process::id());
        let first = reserve_as(&name).unwrap();
        let refused = reserve_as(&name).unwrap_err().to_string();
        assert!(refused.contains("another experiment runs on this machine"), "{refused}");
        drop(first);
        reserve_as(&name).unwrap();
    }
}
