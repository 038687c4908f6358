//! The types of the running kernel, from its file.

use std::fs;
use std::path::Path;

use super::super::btf::{Btf, TypeKind};

/// Reads the types of the kernel.
pub(in super::super) fn read_types(root: &Path) -> Result<Btf, String> {
    let path = root.join("sys/kernel/btf/vmlinux");
    let bytes = fs::read(&path).map_err(|error| {
        format!(
            "{}: {error}; the kernel must be built with CONFIG_DEBUG_INFO_BTF, since Linux 5.4",
            path.display()
        )
    })?;
    Btf::parse(bytes).ok_or_else(|| format!("{}: malformed", path.display()))
}

/// Returns the offset of a member, for an instruction.
pub(in super::super) fn offset(btf: &Btf, structure: &str, path: &str) -> Result<i16, String> {
    let offset = btf.offset(structure, path).and_then(|offset| i16::try_from(offset).ok());
    offset.ok_or_else(|| lacking(&format!("{structure}.{path}")))
}

/// Returns the number of a type.
pub(in super::super) fn type_number(btf: &Btf, kind: TypeKind, name: &str) -> Result<u32, String> {
    btf.number(kind, name).ok_or_else(|| lacking(name))
}

/// Returns the reason if the kernel lacks a type or a member.
pub(super) fn lacking(missing: &str) -> String {
    format!(
        "the kernel has no `{missing}`; it needs Linux 5.8 or later with CONFIG_SCHED_INFO and CONFIG_FAIR_GROUP_SCHED"
    )
}
