//! Values that users supply: nothing is read, and each value arrives as a command of its own.

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::reading::Reading;
use super::source::Source;

/// Counts the values that users supply: a source without slots.
#[derive(Debug)]
struct UserSuppliedSource;

impl CustomSource for UserSuppliedSource {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

impl Source {
    pub fn user_supplied() -> Self {
        Self::Custom(Box::new(UserSuppliedSource))
    }
}
