//! What a run is: its command, place and environment, and what it may use of the machine.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::builder::{OsStringValueParser, TypedValueParser};
use polymeter_client::own_cgroups::OwnCgroups;
use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::limits;
use polymeter_proto::run::Run;
use polymeter_proto::text::{Text, escape};
use polymeter_service::cgroup_mounts::Mounts;
use rustix::thread::sched_getaffinity;

/// Options on what is stored about a run beside its samples.
#[derive(Debug, clap::Args)]
pub(super) struct IdentityOptions {
    /// A name, by which runs are found and compared.
    #[arg(long, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name))]
    name: Option<Text>,

    /// Store these environment variables: --env OMP_NUM_THREADS,CUDA_VISIBLE_DEVICES.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = variable)]
    env: Vec<String>,

    /// Do not store the command line, which may have a password.
    #[arg(long)]
    no_command: bool,
}

fn name(name: OsString) -> Result<Text, String> {
    let escaped = escape(name.as_bytes());
    match escaped.len() {
        0 => Err("a name is not empty".to_owned()),
        length if length > limits::TEXT_BYTES => {
            Err(format!("a name has at most {} bytes", limits::TEXT_BYTES))
        }
        _ => Ok(Text::of(&escaped)),
    }
}

fn variable(name: &str) -> Result<String, String> {
    match name.split_once('=') {
        None if !name.is_empty() => Ok(name.to_owned()),
        Some((variable, _)) if !variable.is_empty() => Err(format!(
            "name the variable only, and set it for the whole command: {name} polymeter run --env {variable}"
        )),
        _ => Err("expected names of variables, separated by commas".to_owned()),
    }
}

impl IdentityOptions {
    /// Also remarks on variables that are not set.
    pub(super) fn details(&self, command: &[OsString], mounts: &Mounts) -> (JobDetails, Vec<String>) {
        let set = self.env.iter().filter_map(|name| Some((name.as_str(), std::env::var_os(name)?)));
        let missing = self.env.iter().filter(|name| std::env::var_os(name).is_none());
        let notes =
            missing.map(|name| format!("the variable {name} is not set and was not stored")).collect();
        let command = command.iter().filter(|_| !self.no_command).map(|argument| argument.as_bytes());
        let directory = std::env::current_dir().ok();
        let host = rustix::system::uname();
        let run = Run::of(
            command,
            directory.as_deref().map(|path| path.as_os_str().as_bytes()),
            Some(host.nodename().to_bytes()),
            set.map(|(name, value)| (name, value.as_bytes().to_vec())),
        );
        let details = JobDetails {
            name: self.name.clone(),
            memory_bytes: memory_bytes(Path::new("/"), mounts, OwnCgroups::read(&mounts.proc).ok()),
            gpus: Some(gpus(Path::new("/"), |variable| std::env::var_os(variable))),
            run: Some(Box::new(run)),
            ..JobDetails::default()
        };
        (details, notes)
    }
}

pub(super) fn facts() -> JobFacts {
    let cpus = sched_getaffinity(None).ok().map(|cpus| cpus.count());
    JobFacts { cores: cpus.filter(|cpus| *cpus > 0), ..JobFacts::default() }
}

/// Memory that the command may use: that of the machine, or the lowest limit of its cgroups.
fn memory_bytes(root: &Path, mounts: &Mounts, own: Option<OwnCgroups>) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok();
    let total =
        meminfo.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let total_kib = total.and_then(|total| total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let hierarchies = [
        (mounts.v2.as_ref(), None, "memory.max"),
        (mounts.v1.get("memory"), Some("memory"), "memory.limit_in_bytes"),
    ];
    let mut lowest = total_kib.map(|kib| kib.saturating_mul(1024));
    for (mount, controller, file) in hierarchies {
        let (Some(mount), Some(own)) = (mount, &own) else { continue };
        let place = mount.join(own.path(controller));
        let within = place.ancestors().take_while(|directory| directory.starts_with(mount));
        let texts = within.filter_map(|directory| fs::read_to_string(directory.join(file)).ok());
        let limit = texts.filter_map(|text| text.trim().parse::<u64>().ok()).min();
        lowest = limit.into_iter().chain(lowest).min();
    }
    lowest
}

/// Devices of a driver. They are named by their addresses; its directory has other files, too.
fn devices(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let colons =
        entries.map(|entry| entry.file_name().as_bytes().iter().filter(|byte| **byte == b':').count());
    colons.filter(|count| *count == 2).count()
}

/// GPUs that the command sees: those that a variable of its environment names, else those of the machine that
/// have a driver.
fn gpus(root: &Path, variable: impl Fn(&str) -> Option<OsString>) -> u32 {
    let makers = [
        (["CUDA_VISIBLE_DEVICES"].as_slice(), devices(&root.join("proc/driver/nvidia/gpus"))),
        (&["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"], devices(&root.join("sys/bus/pci/drivers/amdgpu"))),
    ];
    let mut all = 0;
    for (variables, present) in makers {
        let named = variables.iter().find_map(|name| variable(name));
        all += named.map_or(present, |named| named_devices(&named.to_string_lossy()).min(present));
    }
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// Counts the devices of a list; the first that is none, such as -1, ends it.
fn named_devices(list: &str) -> usize {
    list.split(',').map(str::trim).take_while(|device| !device.is_empty() && !device.starts_with('-')).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_memory_is_that_of_the_machine_or_the_lowest_limit() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        put(root, "proc/meminfo", "MemTotal:        4096 kB\nMemFree: 1 kB\n");
        put(root, "proc/self/cgroup", "9:memory:/a/b\n0::/s/t\n");
        let v1 = BTreeMap::from([("memory".to_owned(), root.join("memory"))]);
        let mounts = Mounts { v2: Some(root.join("unified")), v1, ..Mounts::default() };
        let found = || memory_bytes(root, &mounts, OwnCgroups::read(&root.join("proc")).ok());
        assert_eq!(found(), Some(4096 << 10));
        put(root, "memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        put(root, "unified/s/t/memory.max", "max\n");
        assert_eq!(found(), Some(4096 << 10));
        put(root, "unified/s/memory.max", "3145728\n");
        assert_eq!(found(), Some(3 << 20));
        put(root, "memory/a/b/memory.limit_in_bytes", "1048576\n");
        assert_eq!(found(), Some(1 << 20));
        put(root, "unified/other/memory.max", "1\n");
        assert_eq!(memory_bytes(root, &mounts, None), Some(4096 << 10));
        assert_eq!(memory_bytes(&root.join("none"), &Mounts::default(), None), None);
    }

    #[test]
    fn gpus_are_those_that_the_environment_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let of = |variables: &[(&str, &str)]| {
            gpus(root, |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
            })
        };
        assert_eq!((of(&[]), of(&[("CUDA_VISIBLE_DEVICES", "0,1")])), (0, 0));
        for number in 0..4 {
            put(root, &format!("proc/driver/nvidia/gpus/0000:0{number}:00.0/information"), "");
        }
        put(root, "sys/bus/pci/drivers/amdgpu/0000:c1:00.0/x", "");
        put(root, "sys/bus/pci/drivers/amdgpu/bind", "");
        assert_eq!(of(&[]), 5);
        assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", "2,GPU-7"), ("ROCR_VISIBLE_DEVICES", "")]), 2);
        assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", "0,-1,1")]), 2);
    }

    #[test]
    fn names_and_variables_are_checked() {
        assert_eq!(name("a\n".into()).unwrap().as_str(), r"a\x0a");
        assert!(name("".into()).is_err() && name("x".repeat(2000).into()).is_err());
        assert_eq!(variable("HOME"), Ok("HOME".to_owned()));
        assert!(variable("A=1").unwrap_err().contains("A=1 polymeter run --env A"));
        assert!(variable("").is_err() && variable("=x").is_err());
    }
}
