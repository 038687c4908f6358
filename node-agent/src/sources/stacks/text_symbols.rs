//! Tables of symbols that are text: `/proc/kallsyms`, and the perf maps of compilers that run with their
//! programs. Pure.

use std::io::{BufRead, Read};

use super::search::{Range, Search};

/// Bound of a line: the rest of a longer one is left out, so that its name is cut.
const LINE_BYTES: u64 = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `ffffffff81000000 T name\t[module]`
    Kernel,
    /// `7f0000001000 2a name`, with the size.
    PerfMap,
}

/// Finds the symbols of `wanted` addresses, which are in order. The table is not kept: the kernel's has 10
/// MB.
pub(super) fn search(form: Form, mut text: impl BufRead, wanted: &[u64]) -> Vec<Range<Vec<u8>>> {
    let mut search = Search::new(wanted);
    let mut line = Vec::new();
    while text.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if let Some((start, size, name)) = symbol(form, line.trim_ascii_end()) {
            // Of two the later one counts.
            search.offer(start, size, || name.to_vec(), |joined| *joined = name.to_vec());
        }
        if line.len() as u64 == LINE_BYTES && !line.ends_with(b"\n") && text.skip_until(b'\n').is_err() {
            break;
        }
        line.clear();
    }
    search.finish()
}

fn symbol(form: Form, line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let start = u64::from_str_radix(word()?.trim_start_matches("0x"), 16).ok()?;
    let second = word()?;
    let name = words.next()?.trim_ascii();
    let size = match form {
        Form::Kernel if matches!(second, "t" | "T" | "w" | "W") && start != 0 => 0,
        Form::Kernel => return None,
        Form::PerfMap => u64::from_str_radix(second.trim_start_matches("0x"), 16).ok()?,
    };
    let name = name.split(|byte| form == Form::Kernel && *byte == b'\t').next()?;
    (!name.is_empty()).then_some((start, size, name))
}

pub(super) fn check(data: &[u8]) {
    for form in [Form::Kernel, Form::PerfMap] {
        assert_eq!(search(form, data, &[0x1000, 0xffff_ffff_8100_0000]).len(), 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(form: Form, text: &str, wanted: &[u64]) -> Vec<Option<String>> {
        let found = search(form, text.as_bytes(), wanted).into_iter();
        found.map(|range| range.name.map(|name| String::from_utf8(name).unwrap())).collect()
    }

    #[test]
    fn functions_of_the_kernel_end_where_the_next_begin() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 D data\nffffffff81000040 t do_it\n\
            ffffffffc0000000 t ours\t[module]\n0000000000000000 T hidden\n";
        let wanted = [0x10, 0xffff_ffff_8100_0001, 0xffff_ffff_8100_0050, 0xffff_ffff_c000_0000];
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(names(Form::Kernel, text, &wanted), [None, some("_stext"), some("do_it"), some("ours")]);
    }

    #[test]
    fn long_lines_are_cut_and_the_next_ones_are_read() {
        let name = "n".repeat(100_000);
        let text = format!("1000 20 {name}\n2000 20 short\n{}", "\0".repeat(100_000));
        let found = names(Form::PerfMap, &text, &[0x1001, 0x2001]);
        assert_eq!(found[0].as_ref().map(String::len), Some(2048 - "1000 20 ".len()));
        assert_eq!(found[1].as_deref(), Some("short"));
    }

    #[test]
    fn perf_maps_have_sizes_and_names_with_spaces() {
        let text =
            "7f1000 20 py::f:/home/a b.py\nnonsense\n0x7f1020 0x8 g\n7f1000 20 py::again\n7f2000 zz h\n";
        let found = names(Form::PerfMap, text, &[0x7f1005, 0x7f1021, 0x7f1028, 0x7f2000]);
        assert_eq!(found, [Some("py::again".to_owned()), Some("g".to_owned()), None, None]);
    }
}
