//! A writer of programs, in which jumps name their targets.

use super::instruction::{Condition, Instruction, jump};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program that is being written. Jumps lead forward only, so that every program ends.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    program: Vec<Instruction>,
    /// Jumps whose targets are not known yet, each with its place and its label.
    open: Vec<(usize, Condition, Label)>,
    labels: usize,
}

impl Assembler {
    pub(super) fn push(&mut self, instructions: &[Instruction]) {
        self.program.extend_from_slice(instructions);
    }

    pub(super) const fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    pub(super) fn jump(&mut self, condition: Condition, label: Label) {
        self.open.push((self.program.len(), condition, label));
        self.program.push(jump(condition, 0));
    }

    /// Places a label at the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        let here = self.program.len();
        let program = &mut self.program;
        self.open.retain(|(from, condition, to)| {
            if *to != label {
                return true;
            }
            // A distance that does not fit stays open, and the program is refused.
            let Ok(skipped) = i16::try_from(here - from - 1) else { return true };
            program.iter_mut().skip(*from).take(1).for_each(|place| *place = jump(*condition, skipped));
            false
        });
    }

    /// Ends the program; `None` if a label has no place, or is too far away.
    pub(super) fn finish(self) -> Option<Vec<Instruction>> {
        self.open.is_empty().then_some(self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::super::instruction::{Register, exit, set};
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut assembler = Assembler::default();
        let (end, other) = (assembler.label(), assembler.label());
        assembler.jump(Condition::Zero(Register::R1), end);
        assembler.jump(Condition::Always, other);
        assembler.push(&[set(Register::R0, 1)]);
        assembler.place(other);
        assembler.push(&[set(Register::R0, 2)]);
        assembler.place(end);
        assembler.push(&[exit()]);
        let expected = [
            jump(Condition::Zero(Register::R1), 3),
            jump(Condition::Always, 1),
            set(Register::R0, 1),
            set(Register::R0, 2),
            exit(),
        ];
        assert_eq!(assembler.finish().unwrap(), expected);
    }

    #[test]
    fn a_jump_without_a_place_is_refused() {
        let mut assembler = Assembler::default();
        let nowhere = assembler.label();
        assembler.jump(Condition::Always, nowhere);
        assert_eq!(assembler.finish(), None);
    }
}
