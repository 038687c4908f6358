//! The users that may read all jobs.

use polymeter_service::users::{gid_of, groups_of, members_of, uid_of};
use polymeter_store::reader::Access;
use tracing::warn;

/// The numeric id of root.
const ROOT: u32 = 0;

/// The users and groups that may read all jobs, besides root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Administrators {
    users: Vec<u32>,
    groups: Vec<u32>,
    /// The users that the entries of the groups list.
    members: Vec<u32>,
}

impl Administrators {
    /// Looks up the names of users, and of groups with a leading `@`. An unknown name is logged, and grants
    /// nothing.
    pub(crate) fn look_up(names: &[String]) -> Self {
        let mut administrators = Self::default();
        for name in names {
            let found = match name.strip_prefix('@') {
                Some(group) => gid_of(group).map(|gid| {
                    administrators.groups.push(gid);
                    administrators.members.extend(members_of(group));
                }),
                None => uid_of(name).map(|uid| administrators.users.push(uid)),
            };
            if found.is_none() {
                warn!(name, "unknown administrator: this system has no such user or group");
            }
        }
        administrators
    }

    /// Returns the users among them that are known without a further lookup.
    pub(crate) fn known(&self) -> impl Iterator<Item = u32> + '_ {
        self.users.iter().chain(&self.members).copied()
    }

    /// Returns the access of a user. The lookup of the user's groups may take long.
    pub(crate) fn access(&self, uid: u32) -> Access {
        let in_group =
            || !self.groups.is_empty() && groups_of(uid).iter().any(|gid| self.groups.contains(gid));
        if uid == ROOT || self.users.contains(&uid) || in_group() { Access::All } else { Access::Owner(uid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_configured_read_all_jobs() {
        let administrators = Administrators::look_up(&["daemon".to_owned(), "no.such".to_owned()]);
        let daemon = uid_of("daemon").unwrap();
        for (uid, access) in [(0, Access::All), (daemon, Access::All), (54_321, Access::Owner(54_321))] {
            assert_eq!(administrators.access(uid), access);
        }
        assert!(administrators.known().eq([daemon]));
        // The primary group counts as well.
        let of_group = Administrators::look_up(&["@daemon".to_owned()]);
        assert_eq!(of_group.access(daemon), Access::All);
        assert_eq!(of_group.access(54_321), Access::Owner(54_321));
        assert_eq!(Administrators::default().access(daemon), Access::Owner(daemon));
    }
}
