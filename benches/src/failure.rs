//! The error type of the experiments' `main`, which prints errors in their debug form.

use std::error::Error;
use std::fmt;

/// An error whose debug form is the same as its display form.
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
