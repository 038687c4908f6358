//! Programs in the kernel, and those that are attached to a cgroup.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Fields of `BPF_PROG_QUERY` of bpf(2).
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
    further: [u64; 3],
}

/// Programs that are attached to a cgroup itself, for received and for transmitted packets.
pub(crate) fn attached(cgroup: &Path) -> [u32; 2] {
    const BPF_PROG_QUERY: libc::c_int = 16;
    let cgroup = fs::File::open(cgroup).unwrap();
    [0, 1].map(|attach_type| {
        let mut ids = [0_u32; 64];
        let mut query = Query {
            target: cgroup.as_raw_fd().cast_unsigned(),
            attach_type,
            ids: ids.as_mut_ptr().addr() as u64,
            count: 64,
            ..Query::default()
        };
        let result = bpf(BPF_PROG_QUERY, &mut query);
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        query.count
    })
}

/// Fields of `BPF_PROG_GET_NEXT_ID` and `BPF_PROG_GET_FD_BY_ID`.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
    padding: u32,
}

/// Fields of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct Info {
    descriptor: u32,
    length: u32,
    info: u64,
}

pub(crate) fn programs() -> Vec<(u32, String)> {
    const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
    const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
    /// Place where the name lies in `struct bpf_prog_info`.
    const NAME: std::ops::Range<usize> = 64..80;
    let mut programs = Vec::new();
    let mut request = ById::default();
    while bpf(BPF_PROG_GET_NEXT_ID, &mut request) == 0 {
        let mut of_id = ById { id: request.next_id, ..ById::default() };
        request.id = request.next_id;
        let descriptor = bpf(BPF_PROG_GET_FD_BY_ID, &mut of_id);
        if descriptor < 0 {
            // It has ended meanwhile.
            continue;
        }
        let mut text = [0_u8; 96];
        let address = text.as_mut_ptr().addr() as u64;
        let mut info = Info { descriptor: descriptor.cast_unsigned(), length: 96, info: address };
        assert_eq!(bpf(BPF_OBJ_GET_INFO_BY_FD, &mut info), 0);
        // SAFETY: the descriptor is new, and nobody else knows its number.
        #[expect(unsafe_code, reason = "a descriptor of bpf")]
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let name = text[NAME].iter().take_while(|byte| **byte != 0).copied().collect();
        programs.push((of_id.id, String::from_utf8(name).unwrap()));
    }
    programs
}

fn bpf<T>(command: libc::c_int, attributes: &mut T) -> libc::c_int {
    // SAFETY: the structure has the stated size, and what it points to outlives the call.
    #[expect(unsafe_code, reason = "no safe crate has bpf")]
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    result as libc::c_int
}
