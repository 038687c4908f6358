//! Principals: the requesters, and their rights.

use polymeter_proto::series::{Identifier, JobHandle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal {
    pub uid: u32,
    /// True for root, the agent's own user and the configured administrators: all requests are allowed, and
    /// no limit applies.
    pub administrator: bool,
}

/// User whose jobs share a budget: the owner of a job, or the job itself while its owner is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharer {
    Owner(u32),
    Job(JobHandle),
}

impl Sharer {
    pub fn of(job: JobHandle, owner_uid: Option<u32>) -> Self {
        owner_uid.map_or(Self::Job(job), Self::Owner)
    }
}

impl Principal {
    pub fn can_access(self, owner: Option<u32>) -> bool {
        self.administrator || owner == Some(self.uid)
    }

    /// Name of the user in the data: `uid 1000`.
    pub fn name(self) -> Option<Identifier> {
        Identifier::try_from(format!("uid {}", self.uid)).ok()
    }
}
