//! State of a store, as several checks need it.

use polymeter_proto::read::AgentRow;
use polymeter_service::clock;
use polymeter_store::reader::{Read, Reader};
use polymeter_store::{Administration, ClockJump, LevelState, Storage, StoreError, StoreUrl};

use crate::disk::{Disk, UnknownSpace, disk_of};

/// Agents must have sent something within this time to be examined.
const DAY_NS: i64 = 86_400_000_000_000;

#[derive(Debug)]
pub(super) struct StoreState {
    pub(super) storage: Storage,
    pub(super) retention: Vec<LevelState>,
    pub(super) missing_roles: Vec<String>,
    /// No rows are removed because of it.
    pub(super) clock_jump: Option<ClockJump>,
    pub(super) agents: Vec<AgentRow>,
    pub(super) disk: Result<Disk, UnknownSpace>,
    /// None if the disk lasts for years, or the growth is not known.
    pub(super) days_until_full: Option<u32>,
}

impl StoreState {
    /// Uses the rights of the calling thread.
    pub(super) fn read(url: &StoreUrl) -> Result<Self, StoreError> {
        let mut store = Administration::open(url)?;
        let (storage, retention, now_us) = (store.storage()?, store.retention()?, store.now_us()?);
        let (clock_jump, missing_roles) = (store.clock_jump()?, store.missing_roles()?);
        drop(store);
        let since_ns = clock::realtime_us().saturating_mul(1000).saturating_sub(DAY_NS);
        let agents = <dyn Read>::agents(&mut Reader::open(url)?, since_ns)?;
        let disk = disk_of(&storage);
        let free_bytes = disk.as_ref().ok().map(|disk| disk.free_bytes);
        let days_until_full = free_bytes.and_then(|free| storage.days_until_full(&retention, free, now_us));
        Ok(Self { storage, retention, missing_roles, clock_jump, agents, disk, days_until_full })
    }
}
