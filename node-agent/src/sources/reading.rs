//! Result of one read of one source.
//!
//! A value is present, absent (it was due, and could not be read), or lacking: its device does not have it.

use super::stack_profile::StackProfile;

#[derive(Debug, Default, Clone)]
pub struct Reading {
    /// Bits that the types of the slots' metrics interpret. Those of absent values are meaningless.
    bits: Vec<u64>,
    is_present: Vec<bool>,
    present: usize,
    is_lacking: Vec<bool>,
    lacking: usize,
    /// Empty if all are wanted.
    is_wanted: Vec<bool>,
    stacks: Option<Box<StackProfile>>,
}

impl Reading {
    pub fn absent(slots: usize) -> Self {
        let nothing = vec![false; slots];
        Self {
            bits: vec![0; slots],
            is_present: nothing.clone(),
            present: 0,
            is_lacking: nothing,
            lacking: 0,
            is_wanted: Vec::new(),
            stacks: None,
        }
    }

    /// Makes it one of which only some values are wanted at a time, and now none.
    pub(crate) fn wanted_only(self) -> Self {
        let is_wanted = vec![false; self.bits.len()];
        Self { is_wanted, ..self }
    }

    pub(crate) const fn has_wanted(&self) -> bool {
        !self.is_wanted.is_empty()
    }

    pub(crate) fn want_nothing(&mut self) {
        self.is_wanted.fill(false);
    }

    pub(crate) fn want(&mut self, slot: u32) {
        if let Some(is_wanted) = self.is_wanted.get_mut(slot as usize) {
            *is_wanted = true;
        }
    }

    /// True if a read should set this value.
    pub fn is_wanted(&self, slot: u32) -> bool {
        self.is_wanted.is_empty() || self.is_wanted.get(slot as usize) == Some(&true)
    }

    /// Makes all values absent, and keeps the memory and which are wanted.
    pub fn clear(&mut self) {
        self.stacks = None;
        self.is_present.fill(false);
        self.present = 0;
        if self.lacking > 0 {
            self.is_lacking.fill(false);
            self.lacking = 0;
        }
    }

    /// Ignores slots beyond the end.
    pub fn set(&mut self, slot: u32, bits: u64) {
        let slot = slot as usize;
        if let (Some(place), Some(is_present)) = (self.bits.get_mut(slot), self.is_present.get_mut(slot)) {
            *place = bits;
            self.present += usize::from(!std::mem::replace(is_present, true));
        }
    }

    pub(super) fn set_stacks(&mut self, stacks: StackProfile) {
        self.stacks = Some(Box::new(stacks));
    }

    pub fn take_stacks(&mut self) -> Option<Box<StackProfile>> {
        self.stacks.take()
    }

    /// Records that the device lacks the value of a slot now, so that none was due. Ignores slots beyond the
    /// end.
    pub fn set_lacking(&mut self, slot: u32) {
        if let Some(is_lacking) = self.is_lacking.get_mut(slot as usize) {
            self.lacking += usize::from(!std::mem::replace(is_lacking, true));
        }
    }

    pub fn is_lacking(&self, slot: u32) -> bool {
        self.lacking > 0 && self.is_lacking.get(slot as usize) == Some(&true)
    }

    pub(crate) const fn has_lacking(&self) -> bool {
        self.lacking > 0
    }

    pub fn get(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        self.bits.get(slot).copied().filter(|_| self.is_present.get(slot) == Some(&true))
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> {
        self.bits.iter().zip(&self.is_present).map(|(bits, is_present)| is_present.then_some(*bits))
    }

    /// Bits of all values, if none is absent.
    pub fn whole(&self) -> Option<&[u64]> {
        (self.present == self.bits.len()).then_some(&*self.bits)
    }

    pub fn len(&self) -> usize {
        self.bits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }
}

#[cfg(test)]
impl Reading {
    /// Values that are present, by series: `node.nfs.read.bytes{mount=/home}`.
    pub(super) fn by_series(&self, slots: &[super::slot::Slot]) -> std::collections::BTreeMap<String, u64> {
        let series = slots.iter().map(|slot| format!("{}{{{}}}", slot.definition.name(), slot.labels));
        series.zip(self.iter()).filter_map(|(series, bits)| Some((series, bits?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_present_until_all_are_cleared() {
        let mut reading = Reading::absent(2);
        assert_eq!((reading.get(0), reading.whole()), (None, None));
        reading.set(1, 7);
        reading.set(1, 8);
        reading.set(2, 9);
        assert_eq!(reading.iter().collect::<Vec<_>>(), [None, Some(8)]);
        assert_eq!((reading.get(2), reading.whole()), (None, None));
        reading.set(0, 0);
        assert_eq!((reading.get(0), reading.whole()), (Some(0), Some(&[0, 8][..])));
        reading.clear();
        assert_eq!((reading.get(1), reading.whole()), (None, None));
        assert_eq!(Reading::default().whole(), Some(&[][..]));
    }

    #[test]
    fn all_values_are_wanted_or_some() {
        let mut reading = Reading::absent(2);
        assert!(reading.is_wanted(0) && reading.is_wanted(1));
        reading = reading.wanted_only();
        reading.want(1);
        reading.clear();
        assert!(!reading.is_wanted(0) && reading.is_wanted(1) && !reading.is_wanted(2));
        reading.want_nothing();
        assert!(!reading.is_wanted(1));
    }

    #[test]
    fn values_are_lacking_until_all_are_cleared() {
        let mut reading = Reading::absent(2);
        assert!(!reading.has_lacking());
        reading.set_lacking(1);
        reading.set_lacking(2);
        assert_eq!(
            ([0, 1, 2].map(|slot| reading.is_lacking(slot)), reading.get(1)),
            ([false, true, false], None)
        );
        assert!(reading.has_lacking());
        reading.clear();
        assert!(!reading.has_lacking() && !reading.is_lacking(1));
    }
}
