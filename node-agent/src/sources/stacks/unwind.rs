//! Callers of a sampled function, from its registers and a copy of the top of its stack. Pure.

use std::sync::Arc;

use gimli::{EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};

use super::eh_frame::{self, Cfa, Program, Rule, Saved};
use super::elf::Tables;
use super::records::{DEPTH, Frame};
use super::registers::{FRAME_POINTER, Registers, STACK_POINTER, UserState};

const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

/// Bound of the operations of a program, which may loop for ever.
const OPERATIONS_MAX: u32 = 64;

/// Rule of functions without one: they keep a frame pointer.
static BY_FRAME_POINTER: Rule = Rule {
    cfa: Cfa::Register { register: FRAME_POINTER.0, offset: 16 },
    frame_pointer: Saved::At(-16),
    return_address: Saved::At(-8),
    is_signal: false,
};

enum Step {
    Caller(Registers),
    Outermost,
    Cut,
}

impl UserState {
    /// Appends the function and its callers to `frames`, up to `depth`; `rule` gives the rule of an address.
    /// Returns true if the outermost ones are missing.
    pub(super) fn unwind(
        &self,
        frames: &mut Vec<Frame>,
        depth: usize,
        mut rule: impl FnMut(u64) -> Option<Arc<Rule>>,
    ) -> bool {
        let mut registers = self.registers;
        // An address that was not called from here is the exact one; one behind a call belongs to the call.
        let mut is_exact = true;
        while frames.len() < depth {
            let behind = u64::from(is_exact && !frames.is_empty());
            frames.push(Frame { address: registers.address.saturating_add(behind), is_kernel: false });
            let found = rule(registers.address.saturating_sub(u64::from(!is_exact)));
            let by = found.as_deref().unwrap_or(&BY_FRAME_POINTER);
            let step = if found.is_none() && registers.frame_pointer == 0 {
                Step::Outermost
            } else {
                self.step(&registers, by)
            };
            let caller = match step {
                Step::Caller(caller) => caller,
                Step::Outermost => return false,
                Step::Cut => return true,
            };
            // Stacks grow downwards. A function that has not touched its stack yet may be the first only.
            let is_first = registers == self.registers;
            if caller.stack_pointer < registers.stack_pointer.saturating_add(u64::from(!is_first)) {
                return true;
            }
            registers = caller;
            is_exact = by.is_signal;
        }
        true
    }

    fn step(&self, registers: &Registers, rule: &Rule) -> Step {
        let cfa = match &rule.cfa {
            Cfa::Register { register, offset } => {
                registers.get(*register).and_then(|value| value.checked_add_signed(*offset))
            }
            Cfa::Computed(program) => self.compute(registers, program, None),
        };
        if rule.return_address == Saved::Nowhere {
            return Step::Outermost;
        }
        let Some(cfa) = cfa else { return Step::Cut };
        match self.value(registers, cfa, &rule.return_address, registers.link) {
            Some(0) => Step::Outermost,
            Some(address) => {
                let frame_pointer = self.value(registers, cfa, &rule.frame_pointer, registers.frame_pointer);
                Step::Caller(Registers::caller(address, cfa, frame_pointer.unwrap_or_default()))
            }
            None => Step::Cut,
        }
    }

    fn value(&self, registers: &Registers, cfa: u64, saved: &Saved, own: u64) -> Option<u64> {
        match saved {
            Saved::Unchanged => Some(own),
            Saved::At(offset) => self.memory(cfa.checked_add_signed(*offset)?),
            Saved::Offset(offset) => cfa.checked_add_signed(*offset),
            Saved::Register(register) => registers.get(*register),
            Saved::AtComputed(program) => self.memory(self.compute(registers, program, Some(cfa))?),
            Saved::Computed(program) => self.compute(registers, program, Some(cfa)),
            Saved::Nowhere => None,
        }
    }

    /// Word of the stack at an address.
    fn memory(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.registers.stack_pointer)?).ok()?;
        Some(u64::from_le_bytes(*self.stack.get(at..)?.first_chunk()?))
    }

    fn compute(&self, registers: &Registers, program: &Program, initial: Option<u64>) -> Option<u64> {
        let mut evaluation = Evaluation::new(EndianSlice::new(&program.0, LittleEndian), ENCODING);
        evaluation.set_max_iterations(OPERATIONS_MAX);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().ok()?;
        while state != EvaluationResult::Complete {
            state = if let EvaluationResult::RequiresRegister { register, .. } = state {
                evaluation.resume_with_register(Value::Generic(registers.get(register.0)?)).ok()?
            } else if let EvaluationResult::RequiresMemory { address, size: 8, .. } = state {
                evaluation.resume_with_memory(Value::Generic(self.memory(address)?)).ok()?
            } else {
                return None;
            };
        }
        let Location::Address { address } = evaluation.as_result().last()?.location else { return None };
        Some(address)
    }
}

/// Any bytes: the registers come first, then the stack, whose bytes are a program and an ELF file, too.
pub(super) fn check(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<32>() else { return };
    let mut words = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut word = || words.next().unwrap_or_default();
    let (address, stack_pointer, frame_pointer, link) = (word(), word(), word(), word());
    let registers = Registers { address, stack_pointer, frame_pointer, link };
    let state = UserState { registers, stack: rest.to_vec() };
    let computed = || Saved::Computed(Program(rest.into()));
    let hostile = Arc::new(Rule {
        cfa: Cfa::Computed(Program(rest.into())),
        frame_pointer: Saved::AtComputed(Program(rest.into())),
        return_address: computed(),
        is_signal: true,
    });
    let advancing = Arc::new(Rule {
        cfa: Cfa::Register { register: STACK_POINTER.0, offset: 8 },
        frame_pointer: computed(),
        ..Rule::clone(&hostile)
    });
    let tables = Tables::read(&rest).unwrap_or_default();
    let rules: [&dyn Fn(u64) -> Option<Arc<Rule>>; 4] = [
        &|address| eh_frame::rule(&rest, &tables, address).map(Arc::new),
        &|_| None,
        &|_| Some(Arc::clone(&hostile)),
        &|_| Some(Arc::clone(&advancing)),
    ];
    for rule in rules {
        let mut frames = Vec::new();
        let is_cut = state.unwind(&mut frames, DEPTH.into(), rule);
        assert!(frames.len() < DEPTH.into() || is_cut);
        assert!((1..=DEPTH.into()).contains(&frames.len()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STACK: u64 = 0x7fff_0000;

    fn state(address: u64, frame_pointer: u64, words: &[u64]) -> UserState {
        let registers = Registers { address, stack_pointer: STACK, frame_pointer, link: address };
        UserState { registers, stack: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }

    fn by_stack_pointer(offset: i64) -> Rule {
        let cfa = Cfa::Register { register: STACK_POINTER.0, offset };
        let return_address = Saved::At(-8);
        Rule { cfa, frame_pointer: Saved::Unchanged, return_address, is_signal: false }
    }

    /// Unwinds with rules by address; returns the addresses, and whether outermost ones are missing.
    fn unwound(state: &UserState, rules: &[(u64, Rule)]) -> (Vec<u64>, bool) {
        let mut frames = Vec::new();
        let is_cut = state.unwind(&mut frames, 10, |address| {
            let (_, rule) = rules.iter().find(|(at, _)| *at == address)?;
            Some(Arc::new(rule.clone()))
        });
        (frames.iter().map(|frame| frame.address).collect(), is_cut)
    }

    #[test]
    fn callers_are_found_by_rules_and_by_frame_pointers() {
        let outermost = Rule { return_address: Saved::Nowhere, ..by_stack_pointer(8) };
        // The first has three words, its caller has none and the frame pointer of a function without a rule.
        let state = state(0x100, STACK + 40, &[1, 2, 0x201, 0x301, 9, 0, 0x401]);
        let rules = [(0x100, by_stack_pointer(24)), (0x200, by_stack_pointer(8))];
        let (addresses, is_cut) = unwound(&state, &rules);
        assert_eq!(
            (addresses, is_cut),
            (vec![0x100, 0x201, 0x301, 0x401], false),
            "no frame pointer is left"
        );
        let (addresses, is_cut) = unwound(&state, &[rules.as_slice(), &[(0x300, outermost)]].concat());
        assert_eq!((addresses, is_cut), (vec![0x100, 0x201, 0x301], false));
        // A signal interrupted the caller at exactly this address.
        let signal = Rule { is_signal: true, ..by_stack_pointer(24) };
        let (addresses, _) = unwound(&state, &[(0x100, signal), (0x201, by_stack_pointer(8))]);
        assert_eq!(addresses, [0x100, 0x202, 0x301, 0x401]);
    }

    #[test]
    fn programs_compute_addresses() {
        // The word at the stack pointer plus 8.
        let breg = 0x70 + u8::try_from(STACK_POINTER.0).unwrap();
        let program = || Program(vec![breg, 8, 0x06].into());
        let by_program = Rule { cfa: Cfa::Computed(program()), ..by_stack_pointer(0) };
        let state = state(0x100, 0, &[0, STACK + 32, 0, 0x201]);
        assert_eq!(unwound(&state, &[(0x100, by_program)]), (vec![0x100, 0x201], false));
        let by_program = Rule { return_address: Saved::Computed(program()), ..by_stack_pointer(16) };
        assert_eq!(unwound(&state, &[(0x100, by_program)]).0, [0x100, STACK + 32]);
    }

    #[test]
    fn endless_and_damaged_stacks_are_cut() {
        let forever =
            Rule { cfa: Cfa::Computed(Program(vec![0x2f, 0xfd, 0xff].into())), ..by_stack_pointer(0) };
        let still = [0x100, 0x200].map(|at| (at, by_stack_pointer(0)));
        let words = [0x201; 32];
        assert_eq!(unwound(&state(0x100, 0, &words), &[(0x100, forever)]), (vec![0x100], true));
        assert!(unwound(&state(0x100, 0, &words), &still).1, "the stack does not advance");
        let recursion = [0x100, 0x200].map(|at| (at, by_stack_pointer(8)));
        assert_eq!(
            unwound(&state(0x100, 0, &words), &recursion),
            ([&[0x100][..], &[0x201; 9]].concat(), true)
        );
        assert_eq!(unwound(&state(0x100, 0, &[]), &recursion), (vec![0x100], true));
        assert!(unwound(&state(0x100, 7, &words), &[]).1, "a frame pointer to elsewhere");
    }

    /// A small program of the system: each function has a rule, and each change of its tables has or has
    /// none.
    #[test]
    fn any_tables_give_rules_or_none() {
        let bytes = std::fs::read("/bin/true").unwrap();
        let tables = Tables::read(&bytes.as_slice()).unwrap();
        let index = tables.unwinding().unwrap();
        let start = usize::try_from(index.part.offset).unwrap();
        let end = (start + 16 * 1024).min(bytes.len());
        let entry = |number: usize| {
            let row = &bytes[start + 12 + 8 * number..];
            index.address.wrapping_add_signed(i32::from_le_bytes(row[..4].try_into().unwrap()).into())
        };
        let count = (usize::try_from(index.part.bytes).unwrap() - 12) / 8;
        let file = bytes.as_slice();
        let found = (0..count).filter(|number| eh_frame::rule(&file, &tables, entry(*number)).is_some());
        assert_eq!(found.count(), count);
        let change = (start..end, any::<u8>());
        let changes = prop::collection::vec(change, 1..200);
        proptest!(ProptestConfig::with_cases(300), |(changes in changes, number in 0..count, into in 0_u64..99)| {
            let mut changed = bytes.clone();
            changes.iter().for_each(|(at, byte)| changed[*at] = *byte);
            let file = changed.as_slice();
            eh_frame::rule(&file, &tables, entry(number) + into);
            let words = [entry(number) + into, STACK, STACK + 16, 0].map(u64::to_le_bytes);
            check(&[words.as_flattened(), file].concat());
        });
    }

    #[test]
    fn any_bytes_are_unwound() {
        let word = prop_oneof![any::<u64>(), STACK..STACK + 64];
        let stack = prop::collection::vec(prop_oneof![any::<u8>(), 0x10_u8..0x98, Just(0xff)], 0..100);
        proptest!(ProptestConfig::with_cases(2000), |(words in [word.clone(), word.clone(), word], stack in stack)| {
            let words = [words[0], words[1], words[2], 0].map(u64::to_le_bytes);
            check(&[words.as_flattened(), &stack].concat());
        });
    }
}
