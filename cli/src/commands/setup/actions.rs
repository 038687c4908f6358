//! A plan: steps that are done or not, what differs, and what remains for the administrator.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_proto::key::SERVICE_USER;
use polymeter_service::users;

use crate::commands::keygen;
use crate::failure::Failure;

#[derive(Debug)]
pub(super) enum Change {
    /// `is_services`: it belongs to the service's user.
    Directory { path: PathBuf, is_services: bool },
    /// Writes a file that all users may read. One that exists is the packaged one, without changes.
    File { path: PathBuf, text: String },
    /// Makes a pair of keys: the secret one for the service's user.
    Keys { directory: PathBuf, name: String },
    /// Runs a program as a user.
    Run { user: Option<&'static str>, words: Vec<String> },
}

#[derive(Debug)]
pub(super) struct Step {
    /// A verb and an object.
    pub(super) text: String,
    /// There is nothing to do.
    pub(super) is_done: bool,
    pub(super) change: Change,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Path of each file that differs, and the lines that say how.
    pub(super) differences: Vec<(PathBuf, Vec<String>)>,
    /// What remains for the administrator.
    pub(super) closing: Vec<String>,
}

impl Plan {
    pub(super) fn has_changes(&self) -> bool {
        self.steps.iter().any(|step| !step.is_done)
    }

    pub(super) fn directory(&mut self, path: &str, is_services: bool) {
        let path = PathBuf::from(path);
        let whose = if is_services { format!(", owner {SERVICE_USER}") } else { String::new() };
        let text = format!("create the directory {} (mode 755{whose})", path.display());
        let is_done = path.is_dir() && (!is_services || is_owned(&path));
        self.steps.push(Step { text, is_done, change: Change::Directory { path, is_services } });
    }

    /// Adds a pair of keys, the secret one for the service's user.
    pub(super) fn keys(&mut self, directory: &str, name: &str) {
        let directory = PathBuf::from(directory);
        let is_done = is_owned(&directory.join(format!("{name}.key")));
        let text = format!(
            "make the keys {0}/{name}.key (mode 600, owner {SERVICE_USER}) and {0}/{name}.pub",
            directory.display()
        );
        self.steps.push(Step { text, is_done, change: Change::Keys { directory, name: name.to_owned() } });
    }

    /// `is_done`: the effect of the program is there.
    pub(super) fn run(&mut self, user: Option<&'static str>, words: &[&str], is_done: bool) {
        let by = user.map_or_else(String::new, |user| format!(" as {user}"));
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.steps.push(Step {
            text: format!("run{by}: {}", words.join(" ")),
            is_done,
            change: Change::Run { user, words },
        });
    }

    /// Adds the start of a service if it is wanted, else a line that tells how to.
    pub(super) fn enable(&mut self, unit: &str, is_wanted: bool) {
        if is_wanted {
            let words = ["systemctl", "is-enabled", "--quiet", unit].map(str::to_owned);
            let enabled = command_as(None, &words).and_then(|mut command| command.status());
            self.run(
                None,
                &["systemctl", "enable", "--now", unit],
                enabled.is_ok_and(|status| status.success()),
            );
        } else {
            self.closing.push(format!(
                "To start the service now and with the machine: systemctl enable --now {unit}"
            ));
            if self.has_changes() {
                self.closing.push(format!("If it runs already: systemctl restart {unit}"));
            }
        }
    }

    pub(super) fn text(&self) -> String {
        let line =
            |step: &Step| format!("  {} {}\n", if step.is_done { "[done]" } else { "[    ]" }, step.text);
        let mut text: String = self.steps.iter().map(line).collect();
        for (path, lines) in &self.differences {
            text.push_str(&format!("  [left] {} has other settings:\n", path.display()));
            text.extend(lines.iter().map(|line| format!("           {line}\n")));
        }
        if !self.has_changes() && self.differences.is_empty() {
            text.push_str("nothing to do\n");
        }
        text
    }

    pub(super) fn closing_text(&self) -> String {
        let lines: String = self.closing.iter().map(|line| format!("{line}\n")).collect();
        if lines.is_empty() { lines } else { format!("\n{lines}") }
    }
}

impl Step {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            let remedy =
                if error.kind() == io::ErrorKind::PermissionDenied { "; run this as root" } else { "" };
            Failure::Failed(format!("cannot {}: {error}{remedy}", self.text))
        };
        match &self.change {
            Change::Directory { path, is_services } => {
                fs::create_dir_all(path).map_err(failed)?;
                fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed)?;
                if *is_services { own(path).map_err(failed) } else { Ok(()) }
            }
            Change::File { path, text } => write(path, text).map_err(failed),
            Change::Keys { directory, name } => {
                // Existing keys are never replaced; they may still belong to root.
                let secret = directory.join(format!("{name}.key"));
                let secret = if secret.exists() { secret } else { keygen::make(directory, name)?.secret };
                own(&secret).map_err(failed)
            }
            Change::Run { user, words } => run(*user, words).map_err(failed),
        }
    }
}

fn is_owned(path: &Path) -> bool {
    let owner = fs::metadata(path).map(|metadata| metadata.uid()).ok();
    owner.is_some() && owner == users::uid_of(SERVICE_USER)
}

fn own(path: &Path) -> io::Result<()> {
    let uid = users::uid_of(SERVICE_USER).ok_or_else(|| {
        io::Error::other(format!("this system has no user {SERVICE_USER}; the packages create it, or: useradd --system {SERVICE_USER}"))
    })?;
    chown(path, Some(uid), users::groups_of(uid).first().copied())
}

/// Writes a file beside its place and moves it there, so that no half of it is ever read.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("toml.new");
    fs::remove_file(&beside)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn run(user: Option<&str>, words: &[String]) -> io::Result<()> {
    let mut command = command_as(user, words)?;
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(io::Error::other(format!("{}: {message}", output.status)))
}

pub(super) fn command_as(user: Option<&str>, words: &[String]) -> io::Result<Command> {
    use std::os::unix::process::CommandExt;

    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/");
    if let Some(user) = user {
        let uid =
            users::uid_of(user).ok_or_else(|| io::Error::other(format!("this system has no user {user}")))?;
        let group = users::groups_of(uid).first().copied().unwrap_or(uid);
        if rustix::process::geteuid().as_raw() != uid {
            command.uid(uid).gid(group);
        }
    }
    Ok(command)
}
