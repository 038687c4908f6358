//! Roles of users: administrators, support staff, and managers of accounts. Everyone else reads own jobs.

mod managers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use polymeter_proto::read::JobsOf;
use polymeter_service::log::chain;
use polymeter_service::users::{gid_of, groups_of, members_of, uid_of};
use polymeter_store::reader::Access;
use polymeter_store::{StoreUrl, set_managers};
use tracing::warn;

pub use self::managers::Managers;
use crate::limits;
use crate::shutdown::Shutdown;
use crate::thread::spawn;

const ROOT: u32 = 0;

/// Users with roles. A name with a leading `@` is a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolesConfig {
    /// Read all jobs, besides root.
    pub administrators: Vec<String>,
    /// Read what administrators read.
    pub support: Vec<String>,
    pub managers: Vec<Managers>,
    pub managers_file: Option<PathBuf>,
}

/// Roles in force, shared by all who read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roles(Arc<RwLock<Arc<Table>>>);

#[derive(Debug, Default)]
struct Table {
    administrators: Members,
    /// Listed as members by the entries of the administrators' groups.
    of_administrators: Vec<u32>,
    support: Members,
    managers: BTreeMap<String, Members>,
    /// Names, and those of groups with a leading `@`, by which a database knows the managers.
    names: Vec<Managers>,
}

#[derive(Debug, Default)]
struct Members {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Members {
    fn has(&self, uid: u32, groups: &[u32]) -> bool {
        self.users.contains(&uid) || self.groups.iter().any(|group| groups.contains(group))
    }
}

/// Looks up each name once. An unknown name is logged, and grants nothing.
#[derive(Default)]
struct LookUp<'a>(HashMap<&'a str, Option<u32>>);

impl<'a> LookUp<'a> {
    fn members(&mut self, role: &str, names: &'a [String]) -> Members {
        let mut members = Members::default();
        for name in names {
            let group = name.strip_prefix('@');
            let found = *self.0.entry(name).or_insert_with(|| {
                let found = group.map_or_else(|| uid_of(name), gid_of);
                if found.is_none() {
                    warn!(name, "unknown {role}: this system has no such user or group");
                }
                found
            });
            let of_kind = if group.is_some() { &mut members.groups } else { &mut members.users };
            of_kind.extend(found);
        }
        members
    }
}

impl Table {
    /// Logs the faults of the file.
    fn look_up(config: &RolesConfig) -> Self {
        let mut names = config.managers.clone();
        if let Some(path) = &config.managers_file {
            let (of_file, faults) = managers::read(path);
            names.extend(of_file);
            faults.iter().for_each(|fault| warn!("{fault}"));
        }
        let mut look_up = LookUp::default();
        let mut managers: BTreeMap<String, Members> = BTreeMap::new();
        for of in &names {
            let Members { users, groups } = look_up.members("manager", &of.names);
            let known = managers.entry(of.account.clone()).or_default();
            known.users.extend(users);
            known.groups.extend(groups);
        }
        let groups = config.administrators.iter().filter_map(|name| name.strip_prefix('@'));
        let of_administrators = groups.flat_map(members_of).filter_map(|user| uid_of(&user)).collect();
        Self {
            administrators: look_up.members("administrator", &config.administrators),
            of_administrators,
            support: look_up.members("support staff", &config.support),
            managers,
            names,
        }
    }

    fn access(&self, uid: u32) -> Access {
        let mut roles = [&self.administrators, &self.support].into_iter().chain(self.managers.values());
        let groups = if roles.any(|role| !role.groups.is_empty()) { groups_of(uid) } else { Vec::new() };
        if uid == ROOT || self.administrators.has(uid, &groups) {
            return Access::All;
        }
        if self.support.has(uid, &groups) {
            return Access::Support;
        }
        let managed = self.managers.iter().filter(|(_, members)| members.has(uid, &groups));
        Access::Jobs(JobsOf { uid, accounts: managed.map(|(account, _)| account.clone()).collect() })
    }
}

impl Roles {
    pub(crate) fn look_up(config: &RolesConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(Table::look_up(config)))))
    }

    /// Sessions and requests that begin later have the new roles.
    pub(crate) fn set(&self, config: &RolesConfig) {
        let table = Arc::new(Table::look_up(config));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The look-up of the user's groups may take long.
    pub(crate) fn access(&self, uid: u32) -> Access {
        self.table().access(uid)
    }

    /// Administrators that are known without a look-up of a user's groups.
    pub(crate) fn known(&self) -> Vec<u32> {
        let table = self.table();
        table.administrators.users.iter().chain(&table.of_administrators).copied().collect()
    }

    /// Accounts with the names of their managers, for a database, which knows users by name. For a group
    /// these are the members that the name service lists.
    pub(crate) fn names(&self) -> BTreeSet<(String, String)> {
        let table = self.table();
        let mut names = BTreeSet::new();
        for Managers { account, names: of_account } in &table.names {
            for name in of_account {
                let users = name.strip_prefix('@').map_or_else(|| vec![name.clone()], members_of);
                names.extend(users.into_iter().map(|user| (account.clone(), user)));
            }
        }
        names
    }

    /// Starts a thread that writes the managers into a database with roles of its own. It tries until it
    /// succeeds or the collector stops, always with those in force.
    pub(crate) fn store(&self, store: &StoreUrl, shutdown: &Shutdown) -> io::Result<()> {
        if store.file().is_some() {
            return Ok(());
        }
        let (roles, store, shutdown) = (self.clone(), store.clone(), shutdown.clone());
        // It is not joined: the database may let a statement wait.
        drop(spawn("managers", move || {
            while let Err(error) = set_managers(&store, &roles.names()) {
                warn!(error = %chain(&error), remedy = "retrying automatically", "cannot store the managers of accounts");
                shutdown.wait(limits::STORE_MANAGERS_AGAIN);
                if shutdown.requested_at().is_some() {
                    return;
                }
            }
        })?);
        Ok(())
    }
}

pub(crate) fn file_faults(path: &Path) -> Vec<String> {
    managers::read(path).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(administrators: &[&str], support: &[&str], managers: &[&str]) -> Roles {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let managers = managers.iter().map(|text| text.parse().unwrap()).collect();
        Roles::look_up(&RolesConfig {
            administrators: texts(administrators),
            support: texts(support),
            managers,
            ..RolesConfig::default()
        })
    }

    fn manager(uid: u32, accounts: &[&str]) -> Access {
        Access::Jobs(JobsOf { uid, accounts: accounts.iter().map(|account| (*account).to_owned()).collect() })
    }

    #[test]
    fn only_root_and_the_configured_read_all_jobs() {
        let configured = roles(&["daemon", "no.such"], &[], &[]);
        let daemon = uid_of("daemon").unwrap();
        for (uid, access) in [(0, Access::All), (daemon, Access::All), (54_321, Access::owner(54_321))] {
            assert_eq!(configured.access(uid), access);
        }
        // The primary group counts as well.
        let of_group = roles(&["@daemon"], &[], &[]);
        assert_eq!(of_group.access(daemon), Access::All);
        assert_eq!(of_group.access(54_321), Access::owner(54_321));
        assert_eq!(roles(&[], &[], &[]).access(daemon), Access::owner(daemon));
    }

    #[test]
    fn the_greatest_role_counts_and_accounts_add_up() {
        let [daemon, games, mail] = ["daemon", "games", "mail"].map(|name| uid_of(name).unwrap());
        let managers = ["chem|games,no.such", "bio|@games", "chem|mail", "geo|@no.such"];
        let configured = roles(&["daemon"], &["daemon", "@mail"], &managers);
        assert_eq!(configured.access(daemon), Access::All);
        assert_eq!(configured.access(mail), Access::Support);
        assert_eq!(configured.access(games), manager(games, &["bio", "chem"]));
        assert_eq!(configured.access(54_321), Access::owner(54_321));
        let names = configured.names();
        let of_chem: Vec<&str> =
            names.iter().filter(|(account, _)| account == "chem").map(|(_, user)| user.as_str()).collect();
        assert_eq!(of_chem, ["games", "mail", "no.such"]);
        // Another configuration counts at once.
        configured.set(&RolesConfig::default());
        assert_eq!((configured.access(games), configured.names().len()), (Access::owner(games), 0));
    }
}
