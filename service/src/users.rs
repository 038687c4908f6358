//! Names and numeric ids of users and groups, from the system's name service (`nsswitch.conf`). A lookup may
//! take long. If the name service fails, it returns none.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use polymeter_proto::series::{Identifier, InvalidIdentifier};

/// Parses the name of a user, or of a group with a leading `@`.
pub fn user_or_group(text: &str) -> Result<String, InvalidIdentifier> {
    Identifier::try_from(text.strip_prefix('@').unwrap_or(text)).map(|_| text.to_owned())
}

pub fn uid_of(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

pub fn name_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

pub fn gid_of(name: &str) -> Option<u32> {
    Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// Includes the primary group; empty for an unknown user.
pub fn groups_of(uid: u32) -> Vec<u32> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return Vec::new() };
    let Ok(name) = CString::new(user.name) else { return Vec::new() };
    let groups = getgrouplist(&name, user.gid).unwrap_or_default();
    groups.into_iter().map(Gid::as_raw).collect()
}

/// Members that the name service lists: usually without those whose primary group it is.
pub fn members_of(name: &str) -> Vec<String> {
    Group::from_name(name).ok().flatten().map(|group| group.mem).unwrap_or_default()
}

/// Calls `act` on a thread with the rights of a user and its groups, and returns its result. Other threads
/// keep theirs: the kernel has rights for each thread. Threads that `act` starts inherit the user's.
///
/// Fails if this process may not become the user. A process of that user needs no right.
pub fn act_as<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    use rustix::thread as credentials;

    if rustix::process::geteuid().as_raw() == uid {
        return Ok(act());
    }
    let groups: Vec<_> = groups_of(uid).into_iter().map(credentials::Gid::from_raw).collect();
    let user = credentials::Uid::from_raw(uid);
    let group = credentials::Gid::from_raw(primary_group_of(uid).unwrap_or(uid));
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            credentials::set_thread_groups(&groups)?;
            credentials::set_thread_res_gid(group, group, group)?;
            credentials::set_thread_res_uid(user, user, user)?;
            Ok(act())
        });
        thread.join().unwrap_or_else(|_panic| Err(io::Error::other("the thread panicked")))
    })
}

fn primary_group_of(uid: u32) -> Option<u32> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_one_of_a_thread() {
        let own = rustix::process::geteuid().as_raw();
        let as_nobody = act_as(65_534, || rustix::process::geteuid().as_raw());
        assert_eq!(as_nobody.is_ok(), own == 0 || own == 65_534, "{as_nobody:?}");
        assert!(as_nobody.is_err() || as_nobody.is_ok_and(|uid| uid == 65_534));
        assert_eq!(rustix::process::geteuid().as_raw(), own);
        assert_eq!(act_as(own, || 7).unwrap(), 7);
    }

    #[test]
    fn looks_up_users_and_groups() {
        assert_eq!((uid_of("root"), gid_of("root"), name_of(0).as_deref()), (Some(0), Some(0), Some("root")));
        assert!(groups_of(0).contains(&0));
        assert_eq!(groups_of(4_000_000_000), [0_u32; 0]);
        assert_eq!((uid_of("no.such user"), gid_of("no.such group")), (None, None));
    }
}
