//! Cgroups to which programs are attached. A cgroup that is removed takes its programs with it; one that is
//! created again in its place has none, so that the programs are attached anew, with the same counters.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use tracing::{info, warn};

use super::reason::EbpfError;
use crate::sources::kernel_text::FileError;
use crate::sources::lock::lock;

static ATTACHMENTS: Mutex<Vec<Weak<Attachment>>> = Mutex::new(Vec::new());

/// Open directory of a cgroup of version 2.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: fs::File,
    /// Id of the cgroup in the kernel, which is never used again: the inode's number.
    pub(super) id: u64,
}

impl Cgroup {
    fn open(path: &Path) -> io::Result<Self> {
        let directory = fs::File::open(path)?;
        let id = directory.metadata()?.ino();
        Ok(Self { directory, id })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Programs that count events of one cgroup.
pub(super) trait Programs: Send + fmt::Debug {
    /// Counts the events of this cgroup from now on, and no longer those of the previous one.
    fn attach(&mut self, cgroup: &Cgroup) -> Result<(), EbpfError>;
}

#[derive(Debug)]
pub(super) struct Attachment {
    path: PathBuf,
    state: Mutex<State>,
    is_lost: AtomicBool,
}

#[derive(Debug)]
struct State {
    id: u64,
    programs: Box<dyn Programs>,
}

impl Attachment {
    /// Attaches programs to the cgroup of a path, also when it is created again.
    pub(super) fn new(path: &Path, mut programs: Box<dyn Programs>) -> Result<Arc<Self>, EbpfError> {
        let cgroup = Cgroup::open(path).map_err(FileError::of(path))?;
        programs.attach(&cgroup)?;
        let state = Mutex::new(State { id: cgroup.id, programs });
        let attachment = Arc::new(Self { path: path.to_owned(), state, is_lost: AtomicBool::new(false) });
        let mut attachments = lock(&ATTACHMENTS);
        attachments.retain(|attachment| attachment.strong_count() > 0);
        attachments.push(Arc::downgrade(&attachment));
        Ok(attachment)
    }

    /// True if the programs could not be attached again, so that nothing is counted any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Attaches the programs anew if the cgroup was created again. While there is no cgroup, the counts so
    /// far remain valid.
    fn follow(&self) {
        let mut state = lock(&self.state);
        if self.is_lost() || self.present().is_none_or(|id| id == state.id) {
            return;
        }
        let Ok(cgroup) = Cgroup::open(&self.path) else { return };
        match state.programs.attach(&cgroup) {
            Ok(()) => {
                state.id = cgroup.id;
                info!("{} was created again; its eBPF programs are attached anew", self.path.display());
            }
            Err(reason) if self.present() == Some(cgroup.id) => {
                warn!("{} was created again: {reason}", self.path.display());
                self.is_lost.store(true, Relaxed);
            }
            // It has been removed once more.
            Err(_) => {}
        }
    }

    fn present(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|metadata| metadata.ino())
    }
}

/// Attaches the programs anew to cgroups that were removed and created again. The counts continue.
pub fn follow_created_cgroups() {
    let attachments: Vec<Arc<Attachment>> = lock(&ATTACHMENTS).iter().filter_map(Weak::upgrade).collect();
    attachments.iter().for_each(|attachment| attachment.follow());
}
