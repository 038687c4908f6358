//! Names of functions as programmers write them. Pure.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use polymeter_proto::stacks::FunctionName;

/// Bound of a demangled name: a short symbol may stand for gigabytes.
const DEMANGLED_BYTES: usize = 4096;

/// Deepest nesting of a name, which a thread with a small stack can follow.
const RECURSION: u32 = 48;

/// Text up to [`DEMANGLED_BYTES`].
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = DEMANGLED_BYTES.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(text.get(..end).unwrap_or_default());
        Err(fmt::Error)
    }
}

/// Name of the function with this symbol; the symbol itself where it is not mangled.
pub(super) fn function_name(symbol: &[u8]) -> Option<FunctionName> {
    // The versions of symbols, as in `memcpy@@GLIBC_2.14`.
    let symbol = symbol.split(|byte| *byte == b'@').next().unwrap_or_default();
    let demangled = std::str::from_utf8(symbol).ok().and_then(demangle);
    match demangled {
        Some(name) => FunctionName::escaped(name.as_bytes()),
        None => FunctionName::escaped(symbol),
    }
}

fn demangle(symbol: &str) -> Option<String> {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        let mut text = Bounded::default();
        // Beyond the bound the name is cut.
        write!(text, "{name:#}").ok();
        return Some(text.0);
    }
    if symbol.starts_with("_Z") {
        let options = ParseOptions::default().recursion_limit(RECURSION);
        let parsed = Symbol::new_with_options(symbol, &options).ok()?;
        let mut text = Bounded::default();
        let options = DemangleOptions::default().recursion_limit(RECURSION);
        let is_whole = parsed.structured_demangle(&mut text, &options).is_ok();
        return (is_whole || text.0.len() > DEMANGLED_BYTES / 2).then_some(text.0);
    }
    fortran(symbol)
}

/// Name of a procedure of a Fortran module, as gfortran writes it.
fn fortran(symbol: &str) -> Option<String> {
    let (module, procedure) = symbol.strip_prefix("__")?.split_once("_MOD_")?;
    (!module.is_empty() && !procedure.is_empty()).then(|| format!("{module}::{procedure}"))
}

pub(super) fn check(data: &[u8]) {
    let name = function_name(data);
    let limit = polymeter_proto::limits::FUNCTION_NAME_BYTES;
    assert!(name.is_none_or(|name| !name.as_str().is_empty() && name.as_str().len() <= limit));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(symbol: &str) -> String {
        function_name(symbol.as_bytes()).unwrap().as_str().to_owned()
    }

    #[test]
    fn names_read_as_they_were_written() {
        assert_eq!(name("main"), "main");
        assert_eq!(name("dgemm_"), "dgemm_");
        assert_eq!(name("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(
            name("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)"
        );
        assert_eq!(name("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(name("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
        assert_eq!(name("__grid_MOD_relax"), "grid::relax");
        assert_eq!(name("_Zgarbage"), "_Zgarbage");
        assert_eq!(function_name(b""), None);
    }

    /// Names that nest, or that double with each letter, on a thread as small as those that read sources.
    #[test]
    fn hostile_names_take_little() {
        let nested = format!("_Z1f{}i", "P".repeat(100_000));
        let doubling =
            format!("_Z1fI1a{}E", (0..40).fold("St4pairI1aS_E".to_owned(), |s, _| s + "S0_IS1_S1_E"));
        let templates = format!("_Z{}1aE{}", "N1aI".repeat(3_000), "E".repeat(3_000));
        let thread = std::thread::Builder::new().stack_size(super::super::STACK_BYTES).spawn(move || {
            for symbol in [nested, doubling, templates, format!("_R{}", "NvINt".repeat(20_000))] {
                check(symbol.as_bytes());
            }
        });
        thread.unwrap().join().unwrap();
    }
}
