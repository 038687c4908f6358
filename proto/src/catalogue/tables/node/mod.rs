//! The node's kernel files. Source: `Documentation/filesystems/proc.rst` of Linux.

pub(super) mod cpu;
pub(super) mod disk;
pub(super) mod kernel;
pub(super) mod memory;
pub(super) mod network;
pub(super) mod vm;

use crate::catalogue::text_file::{Form, TextFile};

static STAT: TextFile = TextFile::proc("stat", Form::Keyed);
