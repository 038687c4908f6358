//! `polymeter store import`: stores the samples of files that `polymeter export` wrote.

mod error;
mod frames;

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use polymeter_proto::units::counted;
use polymeter_samples_file::{Rows, SamplesFile};
use polymeter_service::clock::realtime_us;
use polymeter_store::reader::Reader;
use polymeter_store::{OpenOptions, Store, StoreUrl};
use serde::Serialize;
use sha2::{Digest, Sha256};

use self::error::ImportError;
use self::frames::{ExportedJob, Frames};
use crate::client::store_choice::StoreChoice;
use crate::commands::export::DEVICES;
use crate::failure::Failure;
use crate::output::printable::{printable, printable_name};
use crate::output::progress::Progress;
use crate::output::terminal;
use crate::store_failure::store_failure;

const JOB: &str = "polymeter.job";

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArguments {
    /// The files, which polymeter export wrote as Parquet.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    store: StoreChoice,

    /// Print JSON: the job and the number of samples of each file.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Imported {
    file: String,
    job: String,
    /// Number in the file.
    samples: u64,
    /// Those of them that the store did not have.
    stored: u64,
}

impl Imported {
    fn text(&self) -> String {
        let Self { file, job, samples, stored } = self;
        let job = printable_name(job);
        match samples - stored {
            0 => format!("{file}: {} of job {job}\n", counted(stored, "sample")),
            there => {
                let stored = counted(stored, "sample");
                format!("{file}: {stored} of job {job}; the store had the other {there}\n")
            }
        }
    }
}

pub(super) fn execute(arguments: &ImportArguments) -> Result<(), Failure> {
    let options = OpenOptions { may_create: true, ..OpenOptions::default() };
    let url = arguments.store.resolve()?;
    let mut store =
        Store::open(&url, &options).map_err(|error| store_failure("cannot open the store", &error))?;
    let mut all = Vec::new();
    for path in &arguments.files {
        let name = printable(&path.display().to_string()).into_owned();
        let imported = match import(&mut store, &url, path) {
            Ok(imported) => imported,
            Err(ImportError::Store(error)) => {
                return Err(store_failure(&format!("cannot import {name}"), &error));
            }
            Err(error) => return Err(Failure::Failed(format!("cannot import {name}: {error}"))),
        };
        if !arguments.json {
            terminal::print(&imported.text())?;
        }
        all.push(imported);
    }
    if arguments.json { terminal::print_json(&all) } else { Ok(()) }
}

/// Commits a transaction for each part of the file.
fn import(store: &mut Store, url: &StoreUrl, path: &Path) -> Result<Imported, ImportError> {
    let digest = digest(File::open(path).map_err(ImportError::Open)?).map_err(ImportError::Read)?;
    let file = SamplesFile::open(File::open(path).map_err(ImportError::Open)?)?;
    let job = file.property(JOB).ok_or(ImportError::WithoutJob)?;
    let job = ExportedJob::parse(job).ok_or(ImportError::WithoutJob)?;
    let roles = file.property(DEVICES).map(serde_json::from_str).transpose();
    let roles = roles.map_err(ImportError::Devices)?.unwrap_or_default();
    let mut frames = Frames::new(job, roles, digest, realtime_us())?;
    let own = frames.first_session().ok_or(ImportError::WithoutJob)?;
    if store.has_other_job(frames.job(), own)? {
        return Err(ImportError::Known(printable_name(&frames.job().job_id.to_string()).into_owned()));
    }
    let mut reader = Reader::open(url)?;
    store.commit(&frames.begin())?;
    let progress = Progress::new(file.rows());
    let (mut read, mut stored) = (0, 0);
    let copied = file.read(|rows: &Rows| {
        stored += store.commit(&frames.part(rows, &mut reader)?)?.rows;
        read += rows.len() as u64;
        progress.show(read);
        Ok::<_, ImportError>(())
    });
    progress.finish();
    copied?;
    let job = frames.job().job_id.to_string();
    store.commit(&frames.end())?;
    Ok(Imported { file: printable(&path.display().to_string()).into_owned(), job, samples: read, stored })
}

fn digest(file: File) -> io::Result<[u8; 32]> {
    const BUFFER_BYTES: usize = 1 << 20;
    let (mut file, mut digest) = (BufReader::new(file), Sha256::new());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(digest.finalize().into());
        };
        digest.update(bytes);
    }
}
