//! `polymeter keygen`: creates a key pair for an agent or a collector.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use polymeter_proto::key::KeyPair;
use polymeter_proto::series::Identifier;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::printable::printable;
use crate::output::terminal;

/// File systems allow 255 bytes including the suffix.
const NAME_BYTES: usize = 250;

const SECRET_MODE: u32 = 0o600;

const PUBLIC_MODE: u32 = 0o644;

#[derive(Debug, clap::Args)]
pub(crate) struct KeygenArguments {
    /// The directory for the files.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    /// The name of the key pair: that of the node in the data, or `collector`. Default: this host's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &KeygenArguments) -> Result<(), Failure> {
    let name = key_name(arguments.name.as_deref())?;
    let KeyFiles { secret, public, key } = make(&arguments.out, &name)?;
    if arguments.json {
        terminal::print_json(&CreatedKeys { name: &name, key: &secret, public_file: &public, public: key })
    } else {
        terminal::print(&text(&name, &secret, &public))
    }
}

pub(crate) struct KeyFiles {
    pub(crate) secret: PathBuf,
    public: PathBuf,
    key: String,
}

pub(crate) fn make(directory: &Path, name: &str) -> Result<KeyFiles, Failure> {
    if zmq::has("curve") != Some(true) {
        return Err(Failure::Failed(
            "cannot create keys: this libzmq does not support CURVE; install a libzmq built with libsodium"
                .to_owned(),
        ));
    }
    let pair = new_pair().map_err(|error| Failure::because("cannot create keys", &error))?;
    // The absolute path, for use in configurations.
    let out = directory.canonicalize().map_err(|error| {
        let out = directory.display();
        Failure::Failed(format!(
            "cannot write into {out}: {error}; create the directory, or name another with --out"
        ))
    })?;
    let (secret, public) = (out.join(format!("{name}.key")), out.join(format!("{name}.pub")));
    write(&secret, &pair.to_text(name), SECRET_MODE)?;
    if let Err(failure) = write(&public, &pair.public.to_text(name), PUBLIC_MODE) {
        // A remaining half would make the next attempt fail.
        fs::remove_file(&secret).ok();
        return Err(failure);
    }
    Ok(KeyFiles { secret, public, key: pair.public.to_string() })
}

#[derive(Debug, Serialize)]
struct CreatedKeys<'a> {
    name: &'a str,
    key: &'a Path,
    #[serde(rename = "pub")]
    public_file: &'a Path,
    public: String,
}

/// Falls back to the host's name.
pub(crate) fn key_name(given: Option<&str>) -> Result<String, Failure> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let is_usable = Identifier::try_from(name.as_str()).is_ok()
        && name.len() <= NAME_BYTES
        // The name is also that of files, which administrators copy with commands.
        && !name.contains(['/', '\'', '"', '`', '\\', '<', '>', '&'])
        && !name.starts_with(['.', '-']);
    if is_usable {
        return Ok(name);
    }
    let shown: String = name.chars().take(100).collect();
    let shown = printable(&shown);
    Err(Failure::Usage(format!(
        "invalid key name `{shown}`: expected a name that is valid for a node and for a file; choose another with --name"
    )))
}

/// Creates a key pair whose public key does not begin like a path, since configurations accept either.
fn new_pair() -> zmq::Result<KeyPair> {
    loop {
        let keys = zmq::CurveKeyPair::new()?;
        let pair = KeyPair::new(keys.public_key, keys.secret_key);
        if !pair.public.to_string().starts_with('/') {
            return Ok(pair);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let remedy = if error.kind() == ErrorKind::AlreadyExists {
        "; keys are never overwritten: move the old ones away, or choose another --name"
    } else {
        ""
    };
    Failure::Failed(format!("cannot write {}: {error}{remedy}", path.display()))
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|error| cannot_write(path, &error))?;
    // The umask may have restricted the mode.
    let written = file
        .set_permissions(Permissions::from_mode(mode))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        // A remaining file would make the next attempt fail.
        fs::remove_file(path).ok();
        cannot_write(path, &error)
    })
}

fn text(name: &str, secret: &Path, public: &Path) -> String {
    let (secret, public) = (secret.display(), public.display());
    format!(
        "secret: {secret}; keep it on its machine, readable by its owner only
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
