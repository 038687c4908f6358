//! Memory of a job. Source: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of Linux,
//! and `memory_stats` and `memcg1_stats` in `mm/memcontrol*.c`.
//!
//! Version 2 counts a cgroup with its descendants, as the `total_` lines of version 1 do: these share their
//! names. The plain lines of version 1, which exclude descendants, are `memory.local.*` and absent on version
//! 2.

pub(super) mod contents;
pub(super) mod local;
pub(super) mod reclaim;
pub(super) mod usage;

use crate::catalogue::text_file::{Form, TextFile};
use crate::period::Period;

/// The kernel adds up the per-CPU counts after many changes, otherwise every two seconds: `FLUSH_TIME` and
/// `MEMCG_CHARGE_BATCH` of `mm/memcontrol.c`.
const FLUSH: Period = Period::TWO_SECONDS;

static V1_STAT: TextFile = TextFile::v1("memory", "memory.stat", Form::Keyed).updated_every(FLUSH);
static V2_STAT: TextFile = TextFile::v2("memory.stat", Form::Keyed).updated_every(FLUSH);
