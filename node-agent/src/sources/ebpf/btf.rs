//! Types of the running kernel (BTF), from which programs take offsets and the numbers of types. Source:
//! `Documentation/bpf/btf.rst` of Linux.

use std::ops::Range;

/// Kinds of types that are searched for by name, by their number in BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeKind {
    Structure = 4,
    Union = 5,
    Enumeration = 6,
    Alias = 8,
}

/// Deepest nesting of anonymous structures in which a member is searched. The kernel's have two or three.
const NESTING_MAX: u32 = 4;

#[derive(Debug)]
pub(super) struct Btf {
    bytes: Vec<u8>,
    strings: Range<usize>,
    /// Place of each type. Number 0, `void`, is unused.
    places: Vec<usize>,
}

/// Fixed part of a type.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    count: usize,
    /// True if offsets of members contain the size of a bit field.
    has_bit_fields: bool,
    members: usize,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    name: u32,
    type_number: u32,
    offset_bytes: u32,
}

impl Btf {
    /// Reads the tables of types; `None` if they are malformed.
    pub(super) fn parse(bytes: Vec<u8>) -> Option<Self> {
        const MAGIC: u16 = 0xeb9f;
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let header = |index: usize| word(&bytes, 4 + index * 4);
        let section = |offset: usize, length: usize| {
            let start = header(0)?.checked_add(header(offset)?)? as usize;
            Some(start..start.checked_add(header(length)? as usize)?)
        };
        let (types, strings) = (section(1, 2)?, section(3, 4)?);
        if magic != MAGIC || types.end > bytes.len() || strings.end > bytes.len() {
            return None;
        }
        let mut btf = Self { bytes, strings, places: vec![0] };
        let mut place = types.start;
        while place < types.end {
            btf.places.push(place);
            let one = btf.type_at(place)?;
            place = one.members.checked_add(size_of_members(one.kind, one.count)?)?;
        }
        Some(btf)
    }

    pub(super) fn number(&self, kind: TypeKind, name: &str) -> Option<u32> {
        let index = self.places.iter().skip(1).position(|place| {
            self.type_at(*place).is_some_and(|one| one.kind == kind as u32 && self.is_named(one.name, name))
        })?;
        u32::try_from(index + 1).ok()
    }

    /// Offset of a member in bytes: `sched_info.run_delay` of `task_struct`.
    pub(super) fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        let mut number = self.number(TypeKind::Structure, structure)?;
        let mut offset_bytes = 0_u32;
        for name in path.split('.') {
            let member = self.member(number, name, NESTING_MAX)?;
            offset_bytes = member.offset_bytes.checked_add(offset_bytes)?;
            number = member.type_number;
        }
        Some(offset_bytes)
    }

    pub(super) fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let one = self.type_of(self.number(TypeKind::Enumeration, enumeration)?)?;
        (0..one.count).find_map(|index| {
            let place = one.members + index * 8;
            let title = word(&self.bytes, place)?;
            self.is_named(title, name).then(|| word(&self.bytes, place + 4))?
        })
    }

    /// Finds a member of a structure or of an anonymous one in it.
    fn member(&self, number: u32, name: &str, nesting: u32) -> Option<Member> {
        let one = self.type_of(number)?;
        if one.kind != TypeKind::Structure as u32 && one.kind != TypeKind::Union as u32 {
            return None;
        }
        (0..one.count).find_map(|index| {
            let member = self.member_at(&one, index)?;
            if self.is_named(member.name, name) {
                return Some(member);
            }
            let is_anonymous = self.is_named(member.name, "") && nesting > 0;
            let inner = is_anonymous.then(|| self.member(member.type_number, name, nesting - 1))??;
            Some(Member { offset_bytes: member.offset_bytes.checked_add(inner.offset_bytes)?, ..inner })
        })
    }

    fn member_at(&self, one: &Type, index: usize) -> Option<Member> {
        let place = one.members + index * 12;
        let offset = word(&self.bytes, place + 8)?;
        // The upper byte is the size of a bit field.
        let offset_bits = if one.has_bit_fields { offset & 0xff_ffff } else { offset };
        let (name, type_number) = (word(&self.bytes, place)?, word(&self.bytes, place + 4)?);
        Some(Member { name, type_number, offset_bytes: offset_bits / 8 })
    }

    fn type_of(&self, number: u32) -> Option<Type> {
        self.places.get(usize::try_from(number).ok()?).and_then(|place| self.type_at(*place))
    }

    fn type_at(&self, place: usize) -> Option<Type> {
        let info = word(&self.bytes, place + 4)?;
        Some(Type {
            name: word(&self.bytes, place)?,
            kind: info >> 24 & 31,
            count: (info & 0xffff) as usize,
            has_bit_fields: info >> 31 == 1,
            members: place + 12,
        })
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let start = self.strings.start.saturating_add(offset as usize);
        let text = self.bytes.get(start..self.strings.end).unwrap_or_default();
        text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Number of bytes after the fixed part of a type; `None` for an unknown kind.
fn size_of_members(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * count,
        6 | 13 => 8 * count,
        _ => return None,
    })
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    let word = bytes.get(place..place.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

pub(in crate::sources) fn check(data: &[u8]) {
    let Some(btf) = Btf::parse(data.to_vec()) else { return };
    for kind in [TypeKind::Structure, TypeKind::Union, TypeKind::Enumeration, TypeKind::Alias] {
        assert!(btf.number(kind, "outer").is_none_or(|number| (number as usize) < btf.places.len()));
    }
    for path in ["i.b", "c", "x.y", "", "."] {
        btf.offset("outer", path);
    }
    btf.enumerator("color", "blue");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(length: usize) -> u32 {
        u32::try_from(length).unwrap()
    }

    /// `enum color { red = 0, blue = 7 }`, `struct inner { u32 a; u32 b; }` and `struct outer { u64 x; union
    /// { struct inner i; u32 c; }; }`.
    fn laid_out() -> Vec<u8> {
        let strings = b"\0color\0red\0blue\0inner\0a\0b\0outer\0x\0i\0c\0u32\0";
        let at = |name: &str| {
            let text = [b"\0", name.as_bytes(), b"\0"].concat();
            length(strings.windows(text.len()).position(|part| part == text).unwrap()) + 1
        };
        let types: Vec<u32> = [
            vec![at("color"), 6 << 24 | 2, 4, at("red"), 0, at("blue"), 7],
            vec![at("u32"), 1 << 24, 4, 32],
            vec![at("inner"), 4 << 24 | 2, 8, at("a"), 2, 0, at("b"), 2, 32],
            vec![0, 5 << 24 | 2, 8, at("i"), 3, 0, at("c"), 2, 0],
            // With sizes of bit fields in the offsets.
            vec![at("outer"), 1 << 31 | 4 << 24 | 2, 16, at("x"), 2, 8 << 24, 0, 4, 64],
        ]
        .concat();
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
        let header = [24, 0, length(types.len()), length(types.len()), length(strings.len())];
        let header: Vec<u8> = header.into_iter().flat_map(u32::to_ne_bytes).collect();
        [&0xeb9f_u16.to_ne_bytes()[..], &[1, 0], &header, &types, strings].concat()
    }

    #[test]
    fn members_are_found_in_structures_and_in_anonymous_ones() {
        let btf = Btf::parse(laid_out()).unwrap();
        assert_eq!(btf.number(TypeKind::Structure, "outer"), Some(5));
        assert_eq!(btf.number(TypeKind::Union, "outer"), None);
        assert_eq!(btf.offset("outer", "x"), Some(0));
        assert_eq!(btf.offset("outer", "i.b"), Some(12));
        assert_eq!(btf.offset("outer", "c"), Some(8));
        assert_eq!(btf.offset("outer", "b"), None);
        assert_eq!(btf.offset("outer", "x.y"), None);
        assert_eq!(btf.enumerator("color", "blue"), Some(7));
        assert_eq!(btf.enumerator("color", "green"), None);
    }

    #[test]
    fn malformed_types_are_no_types() {
        let whole = laid_out();
        for length in 0..whole.len() {
            assert!(Btf::parse(whole[..length].to_vec()).is_none(), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            if let Some(btf) = Btf::parse(damaged) {
                btf.offset("outer", "i.b");
                btf.enumerator("color", "blue");
            }
        }
    }

    #[test]
    fn members_of_this_kernel_are_found() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
        let btf = Btf::parse(bytes).unwrap();
        assert_eq!(btf.offset("list_head", "prev"), Some(8));
        assert!(btf.offset("task_struct", "se.cfs_rq").unwrap() > 0);
        assert!(btf.number(TypeKind::Alias, "btf_trace_sched_switch").is_some());
    }
}
