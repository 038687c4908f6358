//! Loading and attaching programs.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::direction::Direction;
use super::instruction::Instruction;
use super::system_call::{Name, create, name, number};

/// Fields of `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Debug, Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: Name,
    interface: u32,
    attach_type: u32,
    own_types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attach_type_number: u32,
    attach_program: u32,
    padding: u32,
}

/// Fields of `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Debug, Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// Fields of `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
#[derive(Debug, Default)]
struct TracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_LINK_CREATE: libc::c_int = 28;

const BPF_PROG_TYPE_CGROUP_SKB: u32 = 8;
const BPF_PROG_TYPE_TRACING: u32 = 26;

/// Makes the verifier write its error, without the steps to it.
const BPF_LOG_STATS: u32 = 4;

const LOG_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TracingPlace {
    /// A tracepoint of the kernel: `BPF_TRACE_RAW_TP`.
    Tracepoint = 23,
}

/// Loads a program for the packets of cgroups, which the kernel verifies. It calls no function that the
/// kernel reserves for the GPL.
pub(super) fn load_packet_program(
    title: &CStr,
    direction: Direction,
    program: &[Instruction],
) -> io::Result<OwnedFd> {
    let attributes = ProgramLoad {
        program_type: BPF_PROG_TYPE_CGROUP_SKB,
        attach_type: direction as u32,
        ..of_program(title, c"Apache-2.0", program)?
    };
    create(BPF_PROG_LOAD, attributes)
}

/// Loads a program that runs at a place in the kernel, given by the number of its type. The kernel lets only
/// programs under the GPL read its structures: the programs of `tracing` are under that licence, too. An
/// error has the verifier's message.
pub(super) fn load_tracing_program(
    title: &CStr,
    place: TracingPlace,
    type_number: u32,
    program: &[Instruction],
) -> io::Result<OwnedFd> {
    let load = |log: &mut [u8]| {
        let attributes = ProgramLoad {
            program_type: BPF_PROG_TYPE_TRACING,
            attach_type: place as u32,
            attach_type_number: type_number,
            log_level: if log.is_empty() { 0 } else { BPF_LOG_STATS },
            log_size: u32::try_from(log.len()).map_err(io::Error::other)?,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr().addr() as u64 },
            ..of_program(title, c"GPL", program)?
        };
        create(BPF_PROG_LOAD, attributes)
    };
    match load(&mut []) {
        Err(error) if error.raw_os_error() != Some(libc::EPERM) => {
            let mut log = vec![0; LOG_BYTES];
            load(&mut log).map_err(|error| with_message(error, &log))
        }
        loaded => loaded,
    }
}

/// Adds the first line of the verifier's log to an error, if there is one.
fn with_message(error: io::Error, log: &[u8]) -> io::Error {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    match text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("processed ")) {
        None => error,
        Some(line) => io::Error::new(error.kind(), format!("{line}: {error}")),
    }
}

fn of_program(title: &CStr, licence: &'static CStr, program: &[Instruction]) -> io::Result<ProgramLoad> {
    Ok(ProgramLoad {
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr().addr() as u64,
        licence: licence.as_ptr().addr() as u64,
        name: name(title),
        ..ProgramLoad::default()
    })
}

/// Attaches a program to a cgroup, beside those of others. It is detached when the returned link is closed.
/// Since Linux 5.7.
pub(super) fn attach_to_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    direction: Direction,
) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: number(program),
        target: number(cgroup),
        attach_type: direction as u32,
        flags: 0,
    };
    create(BPF_LINK_CREATE, attributes)
}

/// Attaches a tracing program to its place. It is detached when the returned link is closed.
pub(super) fn attach_tracing_program(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    create(BPF_RAW_TRACEPOINT_OPEN, TracepointOpen { program: number(program), ..TracepointOpen::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_verifier_is_in_the_error() {
        let refused = || io::Error::from_raw_os_error(libc::EACCES);
        let error = with_message(refused(), b"\nR1 invalid mem access 'scalar'\nprocessed 3 insns\n\0\0");
        assert_eq!(error.to_string(), "R1 invalid mem access 'scalar': Permission denied (os error 13)");
        assert_eq!(with_message(refused(), b"processed 3 insns\n\0").raw_os_error(), Some(libc::EACCES));
    }
}
