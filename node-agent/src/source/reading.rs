//! The typed result of one read of one source.

/// One value for each slot of a source, or none where it is absent.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Reading {
    /// The bits of the values, as the slots' metrics define them.
    pub values: Vec<Option<u64>>,
}

impl Reading {
    /// A reading of `slots` absent values.
    pub fn absent(slots: usize) -> Self {
        Self { values: vec![None; slots] }
    }

    /// Makes all values absent, and keeps the memory.
    pub fn clear(&mut self) {
        self.values.fill(None);
    }

    /// Sets the value of a slot; slots beyond the end do not exist.
    pub fn set(&mut self, slot: u32, value: u64) {
        if let Some(place) = self.values.get_mut(slot as usize) {
            *place = Some(value);
        }
    }
}
