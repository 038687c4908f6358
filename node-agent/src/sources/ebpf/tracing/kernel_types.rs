//! Types of the running kernel, from its file.

use std::fs;
use std::io;
use std::path::Path;

use super::super::btf::{Btf, TypeKind};
use super::super::reason::EbpfError;
use crate::sources::kernel_text::FileError;

pub(in super::super) fn read_types(root: &Path) -> Result<Btf, EbpfError> {
    let path = root.join("sys/kernel/btf/vmlinux");
    let bytes = fs::read(&path).map_err(FileError::of(&path)).map_err(EbpfError::NoTypes)?;
    Btf::parse(bytes).ok_or_else(|| EbpfError::File(FileError { path, error: io::Error::other("malformed") }))
}

pub(in super::super) fn offset(btf: &Btf, structure: &str, path: &str) -> Result<i16, EbpfError> {
    let offset = btf.offset(structure, path).and_then(|offset| i16::try_from(offset).ok());
    offset.ok_or_else(|| EbpfError::Lacking(format!("{structure}.{path}")))
}

pub(in super::super) fn type_number(btf: &Btf, kind: TypeKind, name: &str) -> Result<u32, EbpfError> {
    btf.number(kind, name).ok_or_else(|| EbpfError::Lacking(name.to_owned()))
}
