//! Symbol tables of ELF files of 64 bits. A file is a user's: whatever it holds gives symbols or none, with
//! few bytes of memory. Pure: the bytes come from a function that reads them.

use super::search::{Range, Search};

const HEADERS_MAX: u16 = 1024;

/// Bound of the symbols of a file: more than those of the largest libraries. A file with more has none.
const SYMBOLS_MAX: u64 = 2_000_000;

/// Bound of the bytes of a symbol that are read; C++ has longer ones, which are cut.
const SYMBOL_BYTES: usize = 4096;

/// Bytes of a table that are read at once: a multiple of a symbol's.
const CHUNK_BYTES: usize = 24 * 4096;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: u16 = 56;
const SECTION_BYTES: u16 = 64;
const ENTRY_BYTES: u64 = 24;

const SEGMENT_LOADED: u32 = 1;
/// Index of `.eh_frame`, which is loaded, too (`PT_GNU_EH_FRAME`).
const SEGMENT_UNWINDING: u32 = 0x6474_e550;
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;

pub(super) trait ReadAt {
    /// Fills `buffer` from `offset`; returns the number of bytes, fewer at the end and after an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize;
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        if let (Some(into), Some(from)) = (buffer.get_mut(..len), rest.get(..len)) {
            into.copy_from_slice(from);
        }
        len
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A part of a file that is loaded to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) part: Part,
    pub(super) address: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    segments: Vec<Segment>,
    unwinding: Option<Segment>,
    symbols: Part,
    names: Part,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a table of headers; `None` if it is not whole.
fn headers(file: &impl ReadAt, offset: u64, count: u16, bytes: u16) -> Option<Vec<u8>> {
    let mut table = vec![0; usize::from(count.min(HEADERS_MAX)) * usize::from(bytes)];
    (file.read_at(offset, &mut table) == table.len()).then_some(table)
}

impl Tables {
    /// Finds the tables of a file; `None` if it is not an ELF file of 64 bits.
    pub(super) fn read(file: &impl ReadAt) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        let is_whole = file.read_at(0, &mut header) == HEADER_BYTES;
        // Of 64 bits, little-endian.
        if !is_whole || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let mut tables = Self::default();
        if half(&header, 54)? == SEGMENT_BYTES {
            let segments = headers(file, long(&header, 32)?, half(&header, 56)?, SEGMENT_BYTES)?;
            for segment in segments.chunks_exact(SEGMENT_BYTES.into()) {
                let part = Part { offset: long(segment, 8)?, bytes: long(segment, 32)? };
                let found = Segment { part, address: long(segment, 16)? };
                match word(segment, 0)? {
                    SEGMENT_LOADED => tables.segments.push(found),
                    SEGMENT_UNWINDING => tables.unwinding = Some(found),
                    _ => {}
                }
            }
        }
        let sections = if half(&header, 58)? == SECTION_BYTES { half(&header, 60)? } else { 0 };
        // A file that was cut off behind its segments has no symbols.
        let sections = headers(file, long(&header, 40)?, sections, SECTION_BYTES).unwrap_or_default();
        let part = |section: &[u8]| Some(Part { offset: long(section, 24)?, bytes: long(section, 32)? });
        for kind in [SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS] {
            let mut all = sections.chunks_exact(SECTION_BYTES.into());
            let Some(symbols) = all.find(|section| word(section, 4) == Some(kind)) else { continue };
            let names = usize::try_from(word(symbols, 40)?).ok()?;
            let Some(names) = sections.chunks_exact(SECTION_BYTES.into()).nth(names) else { continue };
            (tables.symbols, tables.names) = (part(symbols)?, part(names)?);
            break;
        }
        if tables.symbols.bytes / ENTRY_BYTES > SYMBOLS_MAX {
            tables.symbols = Part::default();
        }
        Some(tables)
    }

    /// Address to which the position `offset` of the file belongs in its tables.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = offset.checked_sub(segment.part.offset)?;
            (into < segment.part.bytes).then_some(segment.address.wrapping_add(into))
        })
    }

    /// Position in the file of an address of its tables.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = address.checked_sub(segment.address)?;
            (into < segment.part.bytes).then_some(segment.part.offset.wrapping_add(into))
        })
    }

    /// Index of `.eh_frame`.
    pub(super) fn unwinding(&self) -> Option<Segment> {
        self.unwinding
    }

    /// Finds the symbols of `wanted` addresses, which are in order.
    pub(super) fn search(&self, file: &impl ReadAt, wanted: &[u64]) -> Vec<Range<Vec<u8>>> {
        let mut search = Search::new(wanted);
        let mut chunk = vec![0; CHUNK_BYTES];
        let (mut offset, mut left) = (self.symbols.offset, self.symbols.bytes);
        while left >= ENTRY_BYTES {
            let bytes = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = chunk.get_mut(..bytes).map_or(0, |chunk| file.read_at(offset, chunk));
            for entry in chunk.get(..read).unwrap_or_default().chunks_exact(24) {
                offer(&mut search, entry);
            }
            if read < bytes {
                break;
            }
            offset = offset.saturating_add(bytes as u64);
            left -= bytes as u64;
        }
        let ranges = search.finish().into_iter();
        let named = ranges.map(|Range { start, end, name }| {
            let names = name.into_iter().flat_map(|Aliases(at)| at).filter(|at| *at != 0);
            let name = names.filter_map(|at| self.name(file, at)).min_by_key(|name| plainness(name));
            Range { start, end, name }
        });
        named.collect()
    }

    fn name(&self, file: &impl ReadAt, at: u32) -> Option<Vec<u8>> {
        let room = self.names.bytes.checked_sub(at.into())?;
        let mut text = vec![0; SYMBOL_BYTES.min(usize::try_from(room).unwrap_or(usize::MAX))];
        let read = file.read_at(self.names.offset.checked_add(at.into())?, &mut text);
        text.truncate(read);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        text.truncate(end);
        (!text.is_empty()).then_some(text)
    }
}

/// Names of one function, as the libraries of C have several, by their places in the table of names; 0 where
/// there is none.
#[derive(Debug, Clone, Copy)]
struct Aliases([u32; 8]);

/// Sort key by which the name that users know comes first: `sqrt` before `__sqrt` and `f32xsqrtf64`.
fn plainness(name: &[u8]) -> (usize, usize, Vec<u8>) {
    let underscores = name.iter().take_while(|byte| **byte == b'_').count();
    (underscores, name.len(), name.to_vec())
}

fn offer(search: &mut Search<'_, Aliases>, entry: &[u8]) {
    /// Kinds of functions: `STT_FUNC` and `STT_GNU_IFUNC`.
    const FUNCTIONS: [u8; 2] = [2, 10];
    let parts = (word(entry, 0), entry.get(4), half(entry, 6), long(entry, 8), long(entry, 16));
    let (Some(name), Some(info), Some(section), Some(start), Some(size)) = parts else { return };
    if FUNCTIONS.contains(&(info & 15)) && section != 0 && start != 0 {
        let first = || Aliases([name, 0, 0, 0, 0, 0, 0, 0]);
        search.offer(start, size, first, |Aliases(names)| {
            if let Some(free) = names.iter_mut().find(|at| **at == 0) {
                *free = name;
            }
        });
    }
}

pub(super) fn check(data: &[u8]) {
    let Some(tables) = Tables::read(&data) else { return };
    let mut wanted: Vec<u64> = (0..8).filter_map(|at| tables.address(at * 16)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let found = tables.search(&data, &wanted);
    assert_eq!(found.len(), wanted.len());
    assert!(found.iter().all(|range| range.name.as_ref().is_none_or(|name| name.len() <= SYMBOL_BYTES)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program, whose symbols are known to `nm`.
    #[test]
    fn functions_of_this_program_are_found() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let file = bytes.as_slice();
        let tables = Tables::read(&file).unwrap();
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let address = functions_of_this_program_are_found as fn() as usize as u64;
        let mapping = super::super::records::parse_maps(&maps)
            .find(|mapping| mapping.start <= address && address < mapping.end)
            .unwrap();
        let wanted = tables.address(address - mapping.start + mapping.offset).unwrap();
        let found = tables.search(&file, &[wanted]);
        let name = String::from_utf8(found[0].name.clone().unwrap()).unwrap();
        assert!(name.contains("functions_of_this_program_are_found"), "{name}");
        assert_eq!(found[0].start, wanted);
    }

    #[test]
    fn the_plainest_alias_names_a_function() {
        let mut names = [b"f32xsqrtf64".as_slice(), b"__sqrt", b"sqrt", b"_ZN1aC2Ev", b"_ZN1aC1Ev"];
        names.sort_by_key(|name| plainness(name));
        assert_eq!(names, [b"sqrt".as_slice(), b"f32xsqrtf64", b"_ZN1aC1Ev", b"_ZN1aC2Ev", b"__sqrt"]);
        let mut search = Search::new(&[70]);
        for name in 1..=20_u32 {
            let mut entry = name.to_le_bytes().to_vec();
            entry.extend([2, 0, 1, 0]);
            entry.extend([64_u64, 16].iter().flat_map(|number| number.to_le_bytes()));
            offer(&mut search, &entry);
        }
        let found = search.finish();
        assert_eq!(found[0].name.map(|Aliases(at)| at), Some([1, 2, 3, 4, 5, 6, 7, 8]));
    }

    #[test]
    fn any_bytes_are_symbols_or_none() {
        use proptest::prelude::*;
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let head = bytes[..16 * 1024].to_vec();
        check(&head);
        check(&bytes[..1024]);
        let changes = prop::collection::vec((0_usize..256, any::<u8>()), 1..20);
        proptest!(|(changes in changes, rest in prop::collection::vec(any::<u8>(), 0..300))| {
            let mut changed = head.clone();
            changes.iter().for_each(|(at, byte)| changed[*at] = *byte);
            changed[..6].copy_from_slice(b"\x7fELF\x02\x01");
            check(&changed);
            check(&[b"\x7fELF\x02\x01".as_slice(), &rest].concat());
        });
    }
}
