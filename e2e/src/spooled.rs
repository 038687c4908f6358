//! The contents of an agent's spool.

use std::fs;
use std::path::{Path, PathBuf};

use polymeter_agent::delivery::outbox::Restored;
use polymeter_agent::delivery::spool::segment;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Frame;

pub struct Spooled {
    pub session: String,
    pub sequence: u64,
    pub samples: u64,
}

pub fn segments(spool: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "spool")).collect()
}

/// Reads the frames. Panics if a segment records dropped frames.
pub fn frames(spool: &Path) -> Vec<Spooled> {
    let mut frames = Vec::new();
    for path in segments(spool) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let session = SessionId(u64::from_str_radix(&name[..16], 16).unwrap());
        for restored in segment::read(session, &fs::read(&path).unwrap()).restored {
            let Restored::Frame(_, bytes, ..) = restored else { panic!("a segment records dropped frames") };
            let frame = Frame::decode(&bytes).unwrap();
            frames.push(Spooled {
                session: frame.session.to_string(),
                sequence: frame.sequence,
                samples: frame.samples(),
            });
        }
    }
    frames
}
