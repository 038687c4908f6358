//! Reasons for which a file is not imported.

use std::io;

use polymeter_proto::text::Text;
use polymeter_samples_file::ReadError;
use polymeter_store::StoreError;

/// Why a file is not imported, or only in part.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImportError {
    #[error("{0}; check the path")]
    Open(#[source] io::Error),
    #[error("it cannot be read ({0}); name a copy")]
    Read(#[source] io::Error),
    #[error("it is damaged, or no file of samples ({0}); name one that polymeter export wrote as Parquet")]
    Other(#[from] ReadError),
    #[error("it does not describe its job; name a file that polymeter export wrote as Parquet")]
    WithoutJob,
    #[error("it describes its devices in another form ({0}); export the job again")]
    Devices(#[source] serde_json::Error),
    #[error("{0}; export the job again")]
    Invalid(#[from] InvalidFile),
    #[error(
        "the store has job {0} from another source, at that time or later; import it into another store, and jobs of the same id in the order of their time"
    )]
    Known(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why the content of a file cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidFile {
    #[error("its name `{0}` is not valid")]
    Name(Text),
    #[error("its metric `{metric}` has the unknown unit `{unit}`")]
    Unit { metric: Text, unit: Text },
    #[error("its labels `{0}` are not valid")]
    Labels(Text),
    #[error("it has samples of another job, `{0}`")]
    OtherJob(Text),
}
