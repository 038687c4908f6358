//! Names and numeric ids of users and groups, from the system's name service (`nsswitch.conf`). A lookup may
//! take long. If the name service fails, it returns none.

use nix::unistd::{Group, Uid, User};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_up_users_and_groups() {
        assert_eq!((uid_of("root"), gid_of("root"), name_of(0).as_deref()), (Some(0), Some(0), Some("root")));
        assert_eq!((uid_of("no.such user"), gid_of("no.such group")), (None, None));
    }
}
