//! Rights that the configuration grants to users and groups.

use std::io;
use std::os::fd::AsFd;

use polymeter_service::users::{gid_of, uid_of};
use tracing::warn;

use crate::config::{AgentConfig, JobVisibility};
use crate::kernel;
use crate::principal::Principal;

#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    administrators: Vec<u32>,
    administrating_groups: Vec<u32>,
    job_visibility: JobVisibility,
}

impl Rights {
    /// Looks up the names of the configuration. An unknown name is logged, and grants nothing.
    pub(crate) fn of(config: &AgentConfig) -> Self {
        let mut rights = Self { job_visibility: config.job_visibility, ..Self::default() };
        for name in &config.administrators {
            let found = match name.strip_prefix('@') {
                Some(group) => gid_of(group).map(|gid| rights.administrating_groups.push(gid)),
                None => uid_of(name).map(|uid| rights.administrators.push(uid)),
            };
            if found.is_none() {
                warn!(name, "unknown administrator: this system has no such user or group");
            }
        }
        rights
    }

    /// Principal at the other end of a connection, as the kernel identifies it, unix(7).
    pub(crate) fn principal(&self, peer: impl AsFd, uid: u32, gid: u32) -> io::Result<Principal> {
        let own = uid == rustix::process::geteuid().as_raw();
        let in_group = |groups: &[u32]| groups.iter().any(|gid| self.administrating_groups.contains(gid));
        let administrator = own
            || self.remote_principal(uid).administrator
            || (!self.administrating_groups.is_empty()
                && (in_group(&[gid]) || in_group(&kernel::peer_groups(peer)?)));
        Ok(Principal { uid, administrator })
    }

    /// Principal of a request from another machine. It has no groups, and the agent's own user may be a
    /// different one there.
    pub(crate) fn remote_principal(&self, uid: u32) -> Principal {
        Principal { uid, administrator: uid == 0 || self.administrators.contains(&uid) }
    }

    pub(crate) fn can_see(&self, principal: Principal, owner: Option<u32>) -> bool {
        self.job_visibility == JobVisibility::All || principal.can_access(owner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_root_and_the_configured_are_administrators() {
        let (one, _other) = UnixStream::pair().unwrap();
        let config = AgentConfig {
            administrators: vec!["@root".to_owned(), "daemon".to_owned()],
            ..AgentConfig::default()
        };
        let rights = Rights::of(&config);
        let daemon = uid_of("daemon").unwrap();
        for (uid, gid, administrator) in [(0, 7, true), (daemon, 7, true), (54_321, 0, true)] {
            assert_eq!(rights.principal(&one, uid, gid).unwrap().administrator, administrator, "{uid}:{gid}");
        }
        let stranger = Rights::default().principal(&one, 54_321, 54_321).unwrap();
        let own = rustix::process::geteuid().as_raw() == 54_321;
        assert!(own || !stranger.administrator);
        assert!(!Rights::default().can_see(stranger, Some(1)));
        assert!(
            Rights { job_visibility: JobVisibility::All, ..Rights::default() }.can_see(stranger, Some(1))
        );
    }

    #[test]
    fn the_kernel_reports_the_groups_of_a_peer() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut reported = kernel::peer_groups(&one).unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        reported.sort_unstable();
        own.sort_unstable();
        assert_eq!(reported, own);
    }
}
