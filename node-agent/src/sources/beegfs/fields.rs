//! Counters of BeeGFS' servers, and their fields in the catalogue. Source: `OpCounter.h` of BeeGFS 7.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Servers {
    Storage,
    Metadata,
}

impl Servers {
    pub(super) const ALL: [Self; 2] = [Self::Storage, Self::Metadata];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Metadata => "metadata",
        }
    }

    /// Name that `beegfs-ctl` uses.
    pub(super) const fn node_type(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Metadata => "meta",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    servers: Servers,
    /// `None` if each operation has a counter.
    counter: Option<&'static str>,
}

const fn field(name: &'static str, servers: Servers, counter: Option<&'static str>) -> Field {
    Field { name, servers, counter }
}

pub(super) static FIELDS: [Field; 6] = [
    field("read_bytes", Servers::Storage, Some("B-rd")),
    field("reads", Servers::Storage, Some("ops-rd")),
    field("write_bytes", Servers::Storage, Some("B-wr")),
    field("writes", Servers::Storage, Some("ops-wr")),
    field("storage_operations", Servers::Storage, None),
    field("metadata_operations", Servers::Metadata, None),
];

/// Operations of storage servers beside reads and writes, without those between servers (`hrtbeat`).
const STORAGE: [&str; 8] = ["close", "fsync", "getFSize", "sAttr", "sChDrct", "statfs", "trunc", "unlnk"];

const METADATA: [&str; 35] = [
    "close",
    "create",
    "createLI",
    "dirparent",
    "entInf",
    "flckAp",
    "flckEn",
    "flckRg",
    "fndOwn",
    "getXA",
    "hardlnk",
    "listXA",
    "lookLI",
    "mkdir",
    "mvDirIns",
    "mvFiIns",
    "open",
    "openLI",
    "rddir",
    "refrEnt",
    "ren",
    "revalLI",
    "rmLnk",
    "rmXA",
    "rmdir",
    "sAttr",
    "sChDrct",
    "sDirPat",
    "setXA",
    "stat",
    "statLI",
    "statfs",
    "symlnk",
    "trunc",
    "unlnk",
];

/// Counters of a field on a type of servers, each with its operation if there are several.
pub(super) fn counters_of(name: Option<&str>, servers: Servers) -> Vec<(&'static str, Option<&'static str>)> {
    let field = FIELDS.iter().find(|field| Some(field.name) == name && field.servers == servers);
    let operations: &[&'static str] = match servers {
        Servers::Storage => &STORAGE,
        Servers::Metadata => &METADATA,
    };
    match field.map(|field| field.counter) {
        None => Vec::new(),
        Some(Some(counter)) => vec![(counter, None)],
        Some(None) => operations.iter().map(|operation| (*operation, Some(*operation))).collect(),
    }
}
