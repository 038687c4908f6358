//! Rules for finding the caller of a function, from the `.eh_frame` of an ELF file. A file is a user's:
//! whatever it holds gives a rule or none, from few bytes. Pure: the bytes come from a function that reads
//! them.
//!
//! Only the entry of one function is read at a time, so that large tables take no memory. The entry is found
//! by the index that linkers write (`.eh_frame_hdr`).

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection,
};

use super::elf::{ReadAt, Tables, long, word};
use super::registers::{FRAME_POINTER, RETURN_ADDRESS, VENDOR};

/// Bound of the entry of a function; those of real programs have hundreds of bytes.
const ENTRY_BYTES_MAX: usize = 64 * 1024;

/// Bound of a program: those of compilers have a dozen bytes, and many rules are remembered.
const PROGRAM_BYTES_MAX: usize = 128;

/// Version of the index, and the encodings of its numbers: four bytes each, relative to the index.
const INDEX_HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const INDEX_HEAD_BYTES: u8 = 12;

/// Program of the DWARF standard that computes an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program(pub(super) Box<[u8]>);

/// Stack pointer at the call: the canonical frame address (CFA).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cfa {
    Register { register: u16, offset: i64 },
    Computed(Program),
}

/// Place where a register of the caller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Saved {
    Unchanged,
    /// Address in memory, relative to the CFA.
    At(i64),
    /// It is the CFA with an offset.
    Offset(i64),
    Register(u16),
    AtComputed(Program),
    Computed(Program),
    /// It is not known. There is no caller if this is the return address.
    Nowhere,
}

/// How to find the caller from some address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) cfa: Cfa,
    pub(super) frame_pointer: Saved,
    pub(super) return_address: Saved,
    /// True if the caller was interrupted by a signal: its address is not that behind a call.
    pub(super) is_signal: bool,
}

impl Rule {
    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let of_cfa = if let Cfa::Computed(Program(bytes)) = &self.cfa { bytes.len() } else { 0 };
        let saved = [&self.frame_pointer, &self.return_address].into_iter();
        let programs = saved.map(|saved| match saved {
            Saved::AtComputed(Program(bytes)) | Saved::Computed(Program(bytes)) => bytes.len(),
            Saved::Unchanged | Saved::At(_) | Saved::Offset(_) | Saved::Register(_) | Saved::Nowhere => 0,
        });
        size_of::<Self>() + of_cfa + programs.sum::<usize>()
    }
}

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;

/// Finds the rule of an address; `None` if no function of the file has it.
pub(super) fn rule(file: &impl ReadAt, tables: &Tables, address: u64) -> Option<Rule> {
    let entry_address = indexed(file, tables, address)?;
    let (bytes, common_bytes) = entry(file, tables.offset(entry_address)?)?;
    let mut section: Section<'_> = EhFrame::new(&bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(VENDOR);
    // Addresses in the entry are relative to their own places.
    let bases = BaseAddresses::default().set_eh_frame(entry_address.wrapping_sub(common_bytes as u64));
    let offset = EhFrameOffset(common_bytes);
    let function = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    let mut context = UnwindContext::new();
    let row = function.unwind_info_for_address(&section, &bases, &mut context, address).ok()?;
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            Cfa::Register { register: register.0, offset: *offset }
        }
        CfaRule::Expression(expression) => Cfa::Computed(program(*expression, &section)?),
    };
    let saved = |register| saved(row.register(register), &section);
    // By convention, a caller's register without a rule is as it was.
    Some(Rule {
        cfa,
        frame_pointer: saved(FRAME_POINTER)?,
        return_address: saved(RETURN_ADDRESS)?,
        is_signal: function.is_signal_trampoline(),
    })
}

fn program(expression: UnwindExpression<usize>, section: &Section<'_>) -> Option<Program> {
    let bytes = expression.get(section).ok()?.0.slice();
    (bytes.len() <= PROGRAM_BYTES_MAX).then(|| Program(bytes.into()))
}

fn saved(rule: Option<RegisterRule<usize>>, section: &Section<'_>) -> Option<Saved> {
    Some(match rule {
        None | Some(RegisterRule::SameValue) => Saved::Unchanged,
        Some(RegisterRule::Offset(offset)) => Saved::At(offset),
        Some(RegisterRule::ValOffset(offset)) => Saved::Offset(offset),
        Some(RegisterRule::Register(register)) => Saved::Register(register.0),
        Some(RegisterRule::Expression(expression)) => Saved::AtComputed(program(expression, section)?),
        Some(RegisterRule::ValExpression(expression)) => Saved::Computed(program(expression, section)?),
        Some(_) => Saved::Nowhere,
    })
}

/// Address of the entry of the last function that begins at `address` or before.
fn indexed(file: &impl ReadAt, tables: &Tables, address: u64) -> Option<u64> {
    let index = tables.unwinding()?;
    let mut head = [0; INDEX_HEAD_BYTES as usize];
    let head_bytes = u64::from(INDEX_HEAD_BYTES);
    if file.read_at(index.part.offset, &mut head) < head.len() || !head.starts_with(&INDEX_HEAD) {
        return None;
    }
    let count = u64::from(word(&head, 8)?).min(index.part.bytes.saturating_sub(head_bytes) / 8);
    let relative = |half: u32| index.address.wrapping_add_signed(half.cast_signed().into());
    let at = |number: u64| {
        let mut row = [0; 8];
        let offset = index.part.offset.checked_add(head_bytes + 8 * number)?;
        let is_whole = file.read_at(offset, &mut row) == row.len();
        is_whole.then_some((relative(word(&row, 0)?), relative(word(&row, 4)?)))
    };
    let (mut first, mut end) = (0, count);
    while first < end {
        let middle = first + (end - first) / 2;
        if at(middle)?.0 <= address {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    Some(at(first.checked_sub(1)?)?.1)
}

/// Reads the entry at `offset`, behind the part that it shares with others. Returns the size of that part,
/// too.
fn entry(file: &impl ReadAt, offset: u64) -> Option<(Vec<u8>, usize)> {
    let function = one_entry(file, offset)?;
    let back = word(&function, 4)?;
    let mut bytes = one_entry(file, offset.checked_add(4)?.checked_sub(back.into())?)?;
    let common_bytes = bytes.len();
    bytes.extend(function);
    // The common part is at the beginning now.
    let back = u32::try_from(common_bytes + 4).ok()?;
    bytes.get_mut(common_bytes + 4..common_bytes + 8)?.copy_from_slice(&back.to_le_bytes());
    Some((bytes, common_bytes))
}

/// Reads an entry with its length, unless it is longer than 4 GiB.
fn one_entry(file: &impl ReadAt, offset: u64) -> Option<Vec<u8>> {
    let mut head = [0; 8];
    let is_whole = file.read_at(offset, &mut head) == head.len();
    let length = usize::try_from(long(&head, 0)? & u64::from(u32::MAX)).ok().filter(|_| is_whole)?;
    let mut bytes = vec![0; length.checked_add(4).filter(|bytes| (8..=ENTRY_BYTES_MAX).contains(bytes))?];
    (file.read_at(offset, &mut bytes) == bytes.len()).then_some(bytes)
}
