//! Fields of the catalogue that Lustre's statistics have.

use polymeter_proto::catalogue::Definition;

pub(super) const KIND: &str = "lustre";

/// Operations whose lines are read: of clients, then of targets.
pub(super) const OPERATIONS: [&str; 46] = [
    "read",
    "write",
    "ioctl",
    "open",
    "close",
    "mmap",
    "page_fault",
    "page_mkwrite",
    "seek",
    "fsync",
    "readdir",
    "setattr",
    "truncate",
    "flock",
    "getattr",
    "fallocate",
    "create",
    "link",
    "unlink",
    "symlink",
    "mkdir",
    "rmdir",
    "mknod",
    "rename",
    "statfs",
    "setxattr",
    "getxattr",
    "getxattr_hits",
    "listxattr",
    "removexattr",
    "inode_permission",
    "alloc_inode",
    "direct_read",
    "direct_write",
    "punch",
    "sync",
    "destroy",
    "connect",
    "disconnect",
    "reconnect",
    "ping",
    "prealloc",
    "samedir_rename",
    "crossdir_rename",
    "parallel_rename_file",
    "parallel_rename_dir",
];

/// Side of the file system that a file is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Samples,
    Bytes,
    Time,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) role: Role,
    /// Name of its line; `None` if each operation has one.
    pub(super) line: Option<&'static str>,
    pub(super) part: Part,
}

const fn field(name: &'static str, role: Role, line: Option<&'static str>, part: Part) -> Field {
    Field { name, role, line, part }
}

pub(super) const FIELDS: [Field; 12] = [
    field("read_bytes", Role::Client, Some("read_bytes"), Part::Bytes),
    field("read_calls", Role::Client, Some("read_bytes"), Part::Samples),
    field("write_bytes", Role::Client, Some("write_bytes"), Part::Bytes),
    field("write_calls", Role::Client, Some("write_bytes"), Part::Samples),
    field("operations", Role::Client, None, Part::Samples),
    field("operation_time", Role::Client, None, Part::Time),
    field("target_read_bytes", Role::Target, Some("read_bytes"), Part::Bytes),
    field("target_read_calls", Role::Target, Some("read_bytes"), Part::Samples),
    field("target_write_bytes", Role::Target, Some("write_bytes"), Part::Bytes),
    field("target_write_calls", Role::Target, Some("write_bytes"), Part::Samples),
    field("target_operations", Role::Target, None, Part::Samples),
    field("target_operation_time", Role::Target, None, Part::Time),
];

pub(super) fn field_of(definition: &Definition) -> Option<Field> {
    let name = definition.metric.field_of(KIND)?;
    FIELDS.into_iter().find(|field| field.name == name)
}
