//! Offsets and numbers of types that the programs need.

use super::super::btf::{Btf, TypeKind};
use super::super::reason::EbpfError;
use super::super::tracing::{CgroupHierarchy, CgroupTypes, offset, type_number};
use super::system_calls::REGISTERS;

#[derive(Debug, Clone, Copy)]
pub(super) struct Types {
    pub(super) cgroups: CgroupTypes,
    /// Offsets in the registers of a system call: of its number, and its first argument.
    pub(super) call_number: i16,
    pub(super) first_argument: i16,
    /// Segment of the code of the process, by which calls of 32 bits are known, whose numbers differ.
    pub(super) code_segment: Option<i16>,
    /// Offsets from a task to its table of files, and to the array of open files.
    pub(super) files: i16,
    pub(super) table: i16,
    pub(super) table_size: i16,
    pub(super) table_files: i16,
    /// Offsets from a file to the device of its file system.
    pub(super) inode: i16,
    pub(super) super_block: i16,
    pub(super) device: i16,
    pub(super) enter: u32,
    pub(super) leave: u32,
}

impl Types {
    pub(super) fn of(btf: &Btf, hierarchy: CgroupHierarchy) -> Result<Self, EbpfError> {
        let registers = |member| offset(btf, "pt_regs", member);
        let [call_number, first_argument] = REGISTERS.ok_or(EbpfError::UnknownSystemCalls)?;
        Ok(Self {
            cgroups: CgroupTypes::of(btf, hierarchy)?,
            call_number: registers(call_number)?,
            first_argument: registers(first_argument)?,
            code_segment: if cfg!(target_arch = "x86_64") { Some(registers("cs")?) } else { None },
            files: offset(btf, "task_struct", "files")?,
            table: offset(btf, "files_struct", "fdt")?,
            table_size: offset(btf, "fdtable", "max_fds")?,
            table_files: offset(btf, "fdtable", "fd")?,
            inode: offset(btf, "file", "f_inode")?,
            super_block: offset(btf, "inode", "i_sb")?,
            device: offset(btf, "super_block", "s_dev")?,
            enter: type_number(btf, TypeKind::Alias, "btf_trace_sys_enter")?,
            leave: type_number(btf, TypeKind::Alias, "btf_trace_sys_exit")?,
        })
    }
}
