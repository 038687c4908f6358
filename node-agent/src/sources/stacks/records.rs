//! Records of perf's ring buffers, from their bytes. Pure.
//!
//! Source: perf_event_open(2), for samples of `IP | TID | TIME | CALLCHAIN`, or with `REGS_USER | STACK_USER`
//! in addition, and with `sample_id_all`: every record that is no sample ends in a thread and a time.

use super::registers::{Registers, SAMPLED, UserState};

/// Deepest stack, in addresses: the usual limit of the kernel, `kernel.perf_event_max_stack`.
pub(super) const DEPTH: u16 = 127;

/// Layout of a sample, and of the end of all other records.
const SAMPLE_ID_BYTES: usize = 16;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;

/// Flag of a record of a switch of a thread that leaves its CPU.
const SWITCH_OUT: u16 = 1 << 13;

/// Flag of a `COMM` record that an exec made.
const COMM_EXEC: u16 = 1 << 13;

/// Addresses of a chain from here on say which part follows.
const CONTEXT_MAX: u64 = 4095_u64.wrapping_neg();
const CONTEXT_KERNEL: u64 = 128_u64.wrapping_neg();
const CONTEXT_USER: u64 = 512_u64.wrapping_neg();

/// A record with the time at which the kernel wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) time_ns: u64,
    pub(super) record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Sample {
        pid: u32,
        tid: u32,
        frames: Vec<Frame>,
        is_cut: bool,
        /// What callers are found by, if the chain has none.
        user: Option<UserState>,
        /// Number of periods that it stands for.
        count: u64,
    },
    In {
        tid: u32,
    },
    /// A thread leaves its CPU.
    Out {
        tid: u32,
    },
    /// A process has mapped a file, or memory, that it may execute.
    Mapped {
        pid: u32,
        mapping: NewMapping,
    },
    Exec {
        pid: u32,
    },
    Fork {
        pid: u32,
        parent: u32,
        tid: u32,
    },
    Exit {
        tid: u32,
    },
    /// Lost records for want of room in the kernel.
    Lost(u64),
    /// Switches from here to a time may be unknown.
    Blind {
        until_ns: u64,
    },
    /// Event paused by the kernel.
    Throttled,
}

/// Address of a stack, the innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) address: u64,
    pub(super) is_kernel: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewMapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Position of the start in the file.
    pub(super) offset: u64,
    /// Device of the file, and its inode; zeros without a file.
    pub(super) file: (u32, u32, u64),
    /// Path as the process sees it, or a name in brackets.
    pub(super) path: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Number of addresses from which on a chain is cut.
    pub(super) depth: usize,
    /// True if registers and stack follow the chain.
    pub(super) has_stack: bool,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// Takes the registers and the stack at the end of a sample; `None` for a thread of the kernel, or of a
    /// program of 32 bits.
    fn user_state(&mut self) -> Option<UserState> {
        const ABI_64: u64 = 2;
        if self.u64()? != ABI_64 {
            return None;
        }
        let words: Option<Vec<u64>> = (0..SAMPLED.count_ones()).map(|_| self.u64()).collect();
        let registers = Registers::sampled(&words?)?;
        let size = usize::try_from(self.u64()?).ok()?;
        let (copied, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        let valid = if size > 0 { usize::try_from(self.u64()?).ok()? } else { 0 };
        Some(UserState { registers, stack: copied.get(..valid)?.to_vec() })
    }
}

/// Parses the body of a record; `None` if it is of no interest, or too short.
pub(super) fn parse(kind: u32, misc: u16, body: &[u8], form: Form) -> Option<Timed> {
    if kind == SAMPLE {
        return sample(body, form);
    }
    let (body, id) = body.split_at_checked(body.len().checked_sub(SAMPLE_ID_BYTES)?)?;
    let mut id = Bytes(id);
    let (_pid, of_tid, time_ns) = (id.u32()?, id.u32()?, id.u64()?);
    let mut bytes = Bytes(body);
    let record = match kind {
        LOST => {
            bytes.u64()?;
            Record::Lost(bytes.u64()?)
        }
        LOST_SAMPLES => Record::Lost(bytes.u64()?),
        THROTTLE => Record::Throttled,
        COMM if misc & COMM_EXEC != 0 => Record::Exec { pid: bytes.u32()? },
        FORK | EXIT => {
            let (pid, parent, tid) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
            if kind == FORK { Record::Fork { pid, parent, tid } } else { Record::Exit { tid } }
        }
        MMAP2 => mapped(bytes)?,
        SWITCH | SWITCH_CPU_WIDE if misc & SWITCH_OUT != 0 => Record::Out { tid: of_tid },
        SWITCH | SWITCH_CPU_WIDE => Record::In { tid: of_tid },
        _ => return None,
    };
    Some(Timed { time_ns, record })
}

fn sample(body: &[u8], form: Form) -> Option<Timed> {
    let mut bytes = Bytes(body);
    let address = bytes.u64()?;
    let (pid, tid, time_ns, count) = (bytes.u32()?, bytes.u32()?, bytes.u64()?, bytes.u64()?);
    let words = bytes.0.as_chunks::<8>().0;
    let count = words.len().min(usize::try_from(count).unwrap_or(usize::MAX));
    let addresses = words.iter().take(count).map(|word| u64::from_ne_bytes(*word));
    let (mut frames, mut is_kernel, mut is_known, mut total) = (Vec::new(), false, true, 0);
    for address in addresses {
        total += 1;
        if address >= CONTEXT_MAX {
            // Those of a guest or a hypervisor have no meaning here.
            (is_kernel, is_known) =
                (address == CONTEXT_KERNEL, matches!(address, CONTEXT_KERNEL | CONTEXT_USER));
        } else if is_known && address != 0 {
            frames.push(Frame { address, is_kernel });
        }
    }
    let mut rest = Bytes(bytes.0.get(8 * count..)?);
    let user = if form.has_stack { rest.user_state() } else { None };
    if frames.is_empty() && address != 0 && user.is_none() {
        frames.push(Frame { address, is_kernel: address > i64::MAX.cast_unsigned() });
    }
    let is_cut = total >= form.depth;
    Some(Timed { time_ns, record: Record::Sample { pid, tid, frames, is_cut, user, count: 1 } })
}

fn mapped(mut bytes: Bytes<'_>) -> Option<Record> {
    let (pid, _tid) = (bytes.u32()?, bytes.u32()?);
    let (start, len, offset) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
    let (major, minor, inode, _generation) = (bytes.u32()?, bytes.u32()?, bytes.u64()?, bytes.u64()?);
    let (_protection, _flags) = (bytes.u32()?, bytes.u32()?);
    let path = bytes.0.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    let end = start.saturating_add(len);
    let mapping = NewMapping { start, end, offset, file: (major, minor, inode), path };
    Some(Record::Mapped { pid, mapping })
}

/// Parses the executable mappings of `/proc/PID/maps`.
pub(super) fn parse_maps(text: &[u8]) -> impl Iterator<Item = NewMapping> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let is_executable = word()?.as_bytes().get(2) == Some(&b'x');
        let offset = u64::from_str_radix(word()?, 16).ok()?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.parse().ok()?;
        let path = words.next().unwrap_or_default().trim_ascii_start().to_vec();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let half = |text: &str| u32::from_str_radix(text, 16).ok();
        let (start, end, file) = (number(start)?, number(end)?, (half(major)?, half(minor)?, inode));
        is_executable.then_some(NewMapping { start, end, offset, file, path })
    })
}

/// Any bytes: the first two are the kind and the flags of a record, and the rest its body, or a text of
/// mappings.
pub(super) fn check(data: &[u8]) {
    parse_maps(data).for_each(drop);
    let Some(([kind, flags], body)) = data.split_first_chunk::<2>() else { return };
    let form = Form { depth: 127, has_stack: flags & 1 != 0 };
    match parse((*kind).into(), u16::from(*flags) << 8, body, form) {
        Some(Timed { record: Record::Sample { frames, user, .. }, .. }) => {
            let stack_bytes = user.map_or(0, |user| user.stack.len());
            assert!(8 * frames.len() + stack_bytes <= body.len());
        }
        Some(Timed { record: Record::Mapped { mapping, .. }, .. }) => {
            assert!(mapping.start <= mapping.end && mapping.path.len() <= body.len());
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(words: &[u64], tail: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        words.chain(tail.iter().copied()).collect()
    }

    const CHAIN: Form = Form { depth: 127, has_stack: false };

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }

    fn id(time_ns: u64) -> Vec<u8> {
        record(&[pair(1, 1), time_ns], &[])
    }

    fn of_thread(frames: Vec<Frame>) -> Record {
        Record::Sample { pid: 7, tid: 8, frames, is_cut: false, user: None, count: 1 }
    }

    #[test]
    fn a_chain_says_which_addresses_are_of_the_kernel() {
        let body =
            record(&[9, pair(7, 8), 55, 5, CONTEXT_KERNEL, 0xffff_8000_0000_0001, CONTEXT_USER, 9, 4], &[]);
        let frame = |address, is_kernel| Frame { address, is_kernel };
        let frames = vec![frame(0xffff_8000_0000_0001, true), frame(9, false), frame(4, false)];
        let expected = of_thread(frames.clone());
        assert_eq!(parse(SAMPLE, 0, &body, CHAIN), Some(Timed { time_ns: 55, record: expected }));
        let Record::Sample { is_cut, .. } =
            parse(SAMPLE, 0, &body, Form { depth: 5, ..CHAIN }).unwrap().record
        else {
            panic!()
        };
        assert!(is_cut);
        // Without a chain the address alone is known; a count beyond the end is that of a damaged record.
        for count in [0, u64::MAX] {
            let alone = parse(SAMPLE, 0, &record(&[9, pair(7, 8), 55, count], &[]), CHAIN).unwrap().record;
            let frames = vec![frame(9, false)];
            assert_eq!(alone, of_thread(frames));
        }
    }

    /// Parses a sample of one function in the kernel, with these words for registers and stack.
    fn parse_with_stack(words: &[u64]) -> (usize, Option<UserState>) {
        let head = [9, pair(7, 8), 55, 2, CONTEXT_KERNEL, 1 << 63];
        let body = record(&[&head, words].concat(), &[]);
        let form = Form { has_stack: true, ..CHAIN };
        let Record::Sample { frames, user, .. } = parse(SAMPLE, 0, &body, form).unwrap().record else {
            panic!()
        };
        (frames.len(), user)
    }

    #[test]
    fn a_stack_follows_the_chain() {
        let registers: Vec<u64> = (1..=u64::from(SAMPLED.count_ones())).collect();
        let sample = |abi, stack: &[u64]| parse_with_stack(&[&[abi], &registers[..], stack].concat());
        let state = |stack: &[u64]| {
            let registers = Registers::sampled(&registers).unwrap();
            Some(UserState { registers, stack: record(stack, &[]) })
        };
        assert_eq!(sample(2, &[16, 5, 6, 8]), (1, state(&[5])), "the kernel copied the first word");
        assert_eq!(sample(2, &[0]), (1, state(&[])));
        assert_eq!(sample(1, &[0]), (1, None), "a program of 32 bits");
        for damaged in [&[16, 5, 6, 17][..], &[u64::MAX, 5, 6, 8], &[]] {
            assert_eq!(sample(2, damaged), (1, None));
        }
    }

    #[test]
    fn other_records_end_in_their_time() {
        let parsed = |kind, misc, body: Vec<u8>| parse(kind, misc, &[body, id(77)].concat(), CHAIN);
        let words = [pair(7, 7), 0x1000, 0x2000, 0x3000, pair(8, 1), 99, 0, pair(5, 2)];
        let mapping = NewMapping {
            start: 0x1000,
            end: 0x3000,
            offset: 0x3000,
            file: (8, 1, 99),
            path: b"/bin/a".to_vec(),
        };
        let found = parsed(MMAP2, 0, record(&words, b"/bin/a\0\0"));
        assert_eq!(found, Some(Timed { time_ns: 77, record: Record::Mapped { pid: 7, mapping } }));
        let record_of = |kind, misc, words: &[u64]| parsed(kind, misc, record(words, &[])).map(|t| t.record);
        let fork = record_of(FORK, 0, &[pair(8, 7), pair(9, 7), 5]);
        assert_eq!(fork, Some(Record::Fork { pid: 8, parent: 7, tid: 9 }));
        assert_eq!(record_of(EXIT, 0, &[pair(8, 7), pair(9, 7), 5]), Some(Record::Exit { tid: 9 }));
        assert_eq!(record_of(LOST, 0, &[3, 12]), Some(Record::Lost(12)));
        assert_eq!(record_of(THROTTLE, 0, &[3, 12, 1]), Some(Record::Throttled));
        assert_eq!(record_of(COMM, COMM_EXEC, &[pair(7, 7), 0]), Some(Record::Exec { pid: 7 }));
        assert_eq!(record_of(SWITCH, 0, &[]), Some(Record::In { tid: 1 }));
        assert_eq!(record_of(SWITCH_CPU_WIDE, SWITCH_OUT, &[pair(4, 5)]), Some(Record::Out { tid: 1 }));
        assert_eq!(record_of(COMM, 0, &[pair(7, 7), 0]), None, "a thread has another name");
    }

    #[test]
    fn mappings_are_read_from_the_text_of_a_process() {
        let text = b"55d0-55e0 r--p 00000000 08:01 1234       /usr/bin/sol ve\n\
            55e0-55f0 r-xp 00001000 fd:0a 1234       /usr/bin/sol ve\n\
            7f00-7f10 rwxp 00000000 00:00 0 \n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\nnonsense\n";
        let found: Vec<NewMapping> = parse_maps(text).collect();
        let texts: Vec<_> =
            found.iter().map(|found| String::from_utf8_lossy(&found.path).into_owned()).collect();
        assert_eq!(texts, ["/usr/bin/sol ve", "", "[vsyscall]"]);
        assert_eq!(
            (found[0].start, found[0].end, found[0].offset, found[0].file),
            (0x55e0, 0x55f0, 0x1000, (0xfd, 10, 1234))
        );
    }

    #[test]
    fn any_bytes_are_a_record_or_none() {
        use proptest::prelude::*;
        proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..20)| {
            check(&[&[kind][..], &bytes].concat());
        });
    }
}
