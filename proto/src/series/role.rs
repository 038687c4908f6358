//! Roles of devices.

use std::fmt;
use std::str::FromStr;

use super::identifier::check_text;
use crate::limits;

/// What a device is made of, as text: its kind, then the devices below it, separated by spaces.
///
/// - `physical`: its bytes are on no other device.
/// - `part DISK...`: a partition.
/// - `stacked DEVICE...`: its bytes are on other devices, which are unknown if none is stated.
/// - `local`: its bytes are on no device and leave the node through none: memory, loopback.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// Its bytes are on no other device.
    Physical,
    Part,
    Stacked,
    /// Memory, or a loopback interface.
    Local,
}

impl RoleKind {
    const ALL: [Self; 4] = [Self::Physical, Self::Part, Self::Stacked, Self::Local];

    /// Returns the name in texts and pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Part => "part",
            Self::Stacked => "stacked",
            Self::Local => "local",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no role of a device")]
pub struct InvalidRole;

impl Role {
    /// Leaves out devices below that have no valid name, or that exceed [`limits::ROLE_BYTES`].
    pub fn new<'a>(kind: RoleKind, below: impl IntoIterator<Item = &'a str>) -> Self {
        let mut text = kind.as_str().to_owned();
        for name in below {
            if is_name(name) && text.len() + 1 + name.len() <= limits::ROLE_BYTES {
                text.push(' ');
                text.push_str(name);
            }
        }
        Self(text)
    }

    pub fn kind(&self) -> RoleKind {
        let word = self.0.split(' ').next();
        RoleKind::ALL.into_iter().find(|kind| Some(kind.as_str()) == word).unwrap_or(RoleKind::Physical)
    }

    /// Returns the names of all devices below it, as the labels of their series have them.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        self.0.split(' ').skip(1)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        let mut words = text.split(' ');
        let word = words.next();
        let kind = RoleKind::ALL.into_iter().find(|kind| Some(kind.as_str()) == word).ok_or(InvalidRole)?;
        let are_valid = match kind {
            RoleKind::Part | RoleKind::Stacked => words.all(is_name),
            RoleKind::Physical | RoleKind::Local => words.next().is_none(),
        };
        if are_valid && text.len() <= limits::ROLE_BYTES {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidRole)
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn is_name(name: &str) -> bool {
    check_text(name, limits::LABEL_VALUE_BYTES).is_ok() && !name.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_texts_within_limits() {
        for text in ["physical", "local", "stacked", "part sda", "stacked 8:0 8:16"] {
            let role: Role = text.parse().unwrap();
            assert_eq!(Role::new(role.kind(), role.below()).as_str(), text);
        }
        let long = format!("part {}", "a".repeat(limits::ROLE_BYTES));
        for text in
            ["", "whole", "part  sda", "part \u{1b}", "Physical", "local lo", "physical ", long.as_str()]
        {
            assert_eq!(text.parse::<Role>(), Err(InvalidRole), "{text}");
        }
        let names: Vec<String> = (0..1000).map(|number| format!("{number}:0")).collect();
        let role = Role::new(RoleKind::Stacked, names.iter().map(String::as_str).chain(["a b", ""]));
        assert!(role.as_str().len() <= limits::ROLE_BYTES && role.below().count() > 100);
        assert_eq!(role.as_str().parse(), Ok(role));
    }
}
