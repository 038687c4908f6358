//! Who people are: names and numbers of users and groups, as the system knows them (`nsswitch.conf`), and what the
//! configuration says of them.

use std::io;
use std::os::fd::AsFd;

use nix::unistd::{Group, User};

use crate::config::{Config, JobVisibility};
use crate::kernel;
use crate::principal::Principal;

/// What the configuration grants to whom, in numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    administrators: Vec<u32>,
    administrating_groups: Vec<u32>,
    job_visibility: JobVisibility,
}

impl Rights {
    /// Looks the names of the configuration up. One that nobody has is said, and grants nothing to anybody.
    pub(crate) fn of(config: &Config) -> Self {
        let mut rights = Self { job_visibility: config.job_visibility, ..Self::default() };
        for name in &config.administrators {
            let found = match name.strip_prefix('@') {
                Some(group) => gid_of(group).map(|gid| rights.administrating_groups.push(gid)),
                None => uid_of(name).map(|uid| rights.administrators.push(uid)),
            };
            if found.is_none() {
                tracing::warn!(
                    error = "this system does not know the name",
                    "cannot use `{name}` of `administrators`"
                );
            }
        }
        rights
    }

    /// Who is at the other end of a connection: the kernel says so, unix(7).
    pub(crate) fn principal(&self, peer: impl AsFd, uid: u32, gid: u32) -> io::Result<Principal> {
        let own = uid == rustix::process::geteuid().as_raw();
        let in_group = |groups: &[u32]| groups.iter().any(|gid| self.administrating_groups.contains(gid));
        let administrator = own
            || self.remote_principal(uid).administrator
            || (!self.administrating_groups.is_empty()
                && (in_group(&[gid]) || in_group(&kernel::peer_groups(peer)?)));
        Ok(Principal { uid, administrator })
    }

    /// Who asks on another machine. It says no groups, and the agent's own user there need not be the agent's.
    pub(crate) fn remote_principal(&self, uid: u32) -> Principal {
        Principal { uid, administrator: uid == 0 || self.administrators.contains(&uid) }
    }

    /// Whether this person may look at what belongs to `owner`.
    pub(crate) fn may_look(&self, principal: Principal, owner: Option<u32>) -> bool {
        self.job_visibility == JobVisibility::All || principal.can_access(owner)
    }
}

/// The numeric id of a user. Asks the system's name service, which may take its time.
pub(crate) fn uid_of(user: &str) -> Option<u32> {
    // A name service that does not answer knows nobody.
    User::from_name(user).ok().flatten().map(|user| user.uid.as_raw())
}

/// The name of a user. Asks the system's name service, which may take its time.
pub(crate) fn name_of(uid: u32) -> Option<String> {
    User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

fn gid_of(group: &str) -> Option<u32> {
    Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_is_taken_for_an_administrator() {
        assert_eq!((uid_of("root"), gid_of("root")), (Some(0), Some(0)));
        assert_eq!(uid_of("no.such user"), None);
        let (one, _other) = UnixStream::pair().unwrap();
        let config =
            Config { administrators: vec!["@root".to_owned(), "daemon".to_owned()], ..Config::default() };
        let rights = Rights::of(&config);
        let daemon = uid_of("daemon").unwrap();
        for (uid, gid, administrator) in [(0, 7, true), (daemon, 7, true), (54_321, 0, true)] {
            assert_eq!(rights.principal(&one, uid, gid).unwrap().administrator, administrator, "{uid}:{gid}");
        }
        let stranger = Rights::default().principal(&one, 54_321, 54_321).unwrap();
        let own = rustix::process::geteuid().as_raw() == 54_321;
        assert!(own || !stranger.administrator);
        assert!(!Rights::default().may_look(stranger, Some(1)));
        assert!(
            Rights { job_visibility: JobVisibility::All, ..Rights::default() }.may_look(stranger, Some(1))
        );
    }

    #[test]
    fn the_kernel_tells_the_groups_of_a_peer() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut told = kernel::peer_groups(&one).unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        told.sort_unstable();
        own.sort_unstable();
        assert_eq!(told, own);
    }
}
