//! `polymeter keygen`: a key pair for an agent or a collector.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use polymeter_proto::key::KeyPair;
use polymeter_proto::series::Identifier;
use serde_json::json;

use crate::failure::Failure;
use crate::printable::printable;
use crate::terminal;

/// Bytes of a name. A file system takes 255 with the ending.
const NAME_BYTES: usize = 250;

/// The mode of the secret key's file: others must not read it.
const SECRET_MODE: u32 = 0o600;

/// The mode of the public key's file: others must not change it.
const PUBLIC_MODE: u32 = 0o644;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory in which the files are made.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    /// Whose keys they are: the node as it is called in the data, or `collector`. Default: this host's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let name = name(arguments)?;
    if zmq::has("curve") != Some(true) {
        return Err(Failure::Refused(
            "this libzmq has no CURVE; install a libzmq that was built with libsodium".to_owned(),
        ));
    }
    let pair = make().map_err(|error| Failure::refused("cannot make keys", &error))?;
    // The whole path, since it is to stand in configurations.
    let out = arguments.out.canonicalize().map_err(|error| {
        let out = arguments.out.display();
        Failure::Refused(format!(
            "cannot write into {out}: {error}; make the directory, or say another with --out"
        ))
    })?;
    let (secret, public) = (out.join(format!("{name}.key")), out.join(format!("{name}.pub")));
    write(&secret, &pair.to_text(&name), SECRET_MODE)?;
    if let Err(failure) = write(&public, &pair.public.to_text(&name), PUBLIC_MODE) {
        // Half a pair is of no use, and would be in the way of the next attempt.
        fs::remove_file(&secret).ok();
        return Err(failure);
    }
    if arguments.json {
        let told = json!({"name": name, "key": secret, "pub": public, "public": pair.public.to_string()});
        terminal::print_json(&format!("{told:#}\n"))
    } else {
        terminal::print(&text(&name, &secret, &public))
    }
}

fn name(arguments: &Arguments) -> Result<String, Failure> {
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let usable = Identifier::try_from(name.as_str()).is_ok()
        && name.len() <= NAME_BYTES
        && !name.contains('/')
        && !name.starts_with(['.', '-']);
    if usable {
        return Ok(name);
    }
    let shown: String = name.chars().take(100).collect();
    let shown = printable(&shown);
    Err(Failure::Usage(format!(
        "`{shown}` cannot be a name of keys: it becomes a node's name and a file's; say another with --name"
    )))
}

/// A key pair whose public key does not look like a path, so that it can stand in a configuration where a path can.
fn make() -> zmq::Result<KeyPair> {
    loop {
        let made = zmq::CurveKeyPair::new()?;
        let pair = KeyPair::new(made.public_key, made.secret_key);
        if !pair.public.to_string().starts_with('/') {
            return Ok(pair);
        }
    }
}

/// Makes a file that was not there.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let advice = if error.kind() == ErrorKind::AlreadyExists {
            "; keys are never overwritten: move the old ones away first, or say another --name"
        } else {
            ""
        };
        Failure::Refused(format!("cannot write {}: {error}{advice}", path.display()))
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    // The mode again, since the umask may have taken from it.
    let written = file
        .set_permissions(Permissions::from_mode(mode))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key would be in the way of the next attempt.
        fs::remove_file(path).ok();
        failed(error)
    })
}

fn text(name: &str, secret: &Path, public: &Path) -> String {
    let (secret, public) = (secret.display(), public.display());
    format!(
        "secret: {secret}, which stays on its machine, readable by its owner only
public: {public}

for an agent, on its node, in agent.toml:
  key = \"{secret}\"
  collector_key = \"...\"      # the collector's .pub file, or the key in it
and on the collector's machine:
  copy {name}.pub into the directory authorised_agents

for a collector, in collector.toml:
  key = \"{secret}\"
  authorised_agents = \"...\"  # the directory with the agents' .pub files
"
    )
}
