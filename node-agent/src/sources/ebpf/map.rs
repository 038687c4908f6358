//! Maps: tables in memory of the kernel, which programs and the agent share. All memory is taken when a map
//! is created.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::system_call::{Name, command, create, name, number};

/// Fields of `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Debug, Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: Name,
}

/// Fields of `BPF_MAP_UPDATE_ELEM` and `BPF_MAP_DELETE_ELEM`.
#[repr(C)]
#[derive(Debug, Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;

const BPF_MAP_TYPE_HASH: u32 = 1;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_LRU_HASH: u32 = 9;

/// Makes the memory of an array mappable. Since Linux 5.5.
const BPF_F_MMAPABLE: u32 = 1 << 10;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries: u32,
}

/// Creates an array of zeros, whose memory can be mapped.
pub(super) fn create_array(title: &CStr, value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    create_map(BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, title, Sizes { key_bytes: 4, value_bytes, entries })
}

/// Creates a hash table, which refuses further keys when it is full.
pub(super) fn create_hash(title: &CStr, sizes: Sizes) -> io::Result<OwnedFd> {
    create_map(BPF_MAP_TYPE_HASH, 0, title, sizes)
}

/// Creates a hash table that drops the least recently used keys when it is full.
pub(super) fn create_cache(title: &CStr, sizes: Sizes) -> io::Result<OwnedFd> {
    create_map(BPF_MAP_TYPE_LRU_HASH, 0, title, sizes)
}

fn create_map(map_type: u32, map_flags: u32, title: &CStr, sizes: Sizes) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        map_type,
        key_size: sizes.key_bytes,
        value_size: sizes.value_bytes,
        max_entries: sizes.entries,
        map_flags,
        name: name(title),
        ..MapCreate::default()
    };
    create(BPF_MAP_CREATE, attributes)
}

/// Stores a value under a key. Both must have the sizes with which the map was created.
pub(super) fn update<K, V>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    let mut element = Element { value: (&raw const *value).addr() as u64, ..element_of(map, key) };
    command(BPF_MAP_UPDATE_ELEM, &mut element).map(drop)
}

pub(super) fn delete<K>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    command(BPF_MAP_DELETE_ELEM, &mut element_of(map, key)).map(drop)
}

fn element_of<K>(map: BorrowedFd<'_>, key: &K) -> Element {
    Element { map: number(map), key: (&raw const *key).addr() as u64, ..Element::default() }
}
