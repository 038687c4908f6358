//! Names and numeric ids of users and groups, from the system's name service (`nsswitch.conf`). A lookup may
//! take long. If the name service fails, it returns none.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// Returns the numeric id of the user `name`.
pub fn uid_of(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// Returns the name of the user with the numeric id `uid`.
pub fn name_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Returns the numeric id of the group `name`.
pub fn gid_of(name: &str) -> Option<u32> {
    Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// Returns the numeric ids of the groups of the user with the numeric id `uid`, with the primary one; empty for an unknown user.
pub fn groups_of(uid: u32) -> Vec<u32> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return Vec::new() };
    let Ok(name) = CString::new(user.name) else { return Vec::new() };
    let groups = getgrouplist(&name, user.gid).unwrap_or_default();
    groups.into_iter().map(Gid::as_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_up_users_and_groups() {
        assert_eq!((uid_of("root"), gid_of("root"), name_of(0).as_deref()), (Some(0), Some(0), Some("root")));
        assert!(groups_of(0).contains(&0));
        assert_eq!(groups_of(4_000_000_000), [0_u32; 0]);
        assert_eq!((uid_of("no.such user"), gid_of("no.such group")), (None, None));
    }
}
