//! The systemd unit of the agent, and the drop-ins that grant what metrics beyond the default plan need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::{skip, tests};

use crate::documents::root;

tests![systemd_accepts_the_unit_with_each_drop_in, every_drop_in_is_a_right_of_the_module_and_documented];

fn drop_ins() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join("deploy/systemd/drop-ins")).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Lines that `systemd-analyze verify` prints about the unit with a drop-in.
fn faults(drop_in: &Path) -> Option<String> {
    let units = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(root().join("deploy/systemd/polymeter-agent.service")).unwrap();
    // The program need not be installed.
    let unit = unit.replace("/usr/bin/polymeter-agent", "/bin/true");
    fs::write(units.path().join("polymeter-agent.service"), unit).unwrap();
    let directory = units.path().join("polymeter-agent.service.d");
    fs::create_dir(&directory).unwrap();
    fs::copy(drop_in, directory.join("drop-in.conf")).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.arg("verify").arg(units.path().join("polymeter-agent.service"));
    // The system's own units follow.
    let output = command.env("SYSTEMD_UNIT_PATH", format!("{}:", units.path().display())).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

fn systemd_accepts_the_unit_with_each_drop_in() {
    for (name, path) in drop_ins() {
        match faults(&path) {
            None => skip("systemd", "systemd-analyze is missing"),
            Some(faults) => assert_eq!(faults, "", "{name}"),
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.conf");
    fs::write(&wrong, "[Service]\nAmbientCapability=CAP_BPF\n").unwrap();
    assert!(faults(&wrong).unwrap().contains("AmbientCapability"), "systemd reports a wrong key");
}

fn every_drop_in_is_a_right_of_the_module_and_documented() {
    let module = fs::read_to_string(root().join("nix/modules/agent.nix")).unwrap();
    let (_, rights) = module.split_once("\n  rights = {\n").unwrap();
    let (rights, _) = rights.split_once("\n  };\n").unwrap();
    let names = rights
        .lines()
        .filter(|line| line.starts_with("    ") && !line.starts_with("     ") && line.contains('='))
        .map(|line| line.trim().split([' ', '.']).next().unwrap().to_owned());
    let of_drop_ins: BTreeSet<String> = drop_ins().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), of_drop_ins);
    let page = fs::read_to_string(root().join("docs/how-to/systemd.md")).unwrap();
    for name in of_drop_ins {
        assert!(page.contains(&format!("\n| `{name}.conf` |")), "{name}");
    }
}
