//! Lines of a text, their words, and the rows among them that are wanted.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use polymeter_proto::catalogue::{self, Cell, Definition, Form, Hierarchy, Origin, Row};
use polymeter_proto::series::Labels;

use crate::sources::slot::Wanted;

/// Metrics and labels that have a slot: of several places the first counts.
pub(crate) type Seen = BTreeSet<(String, Labels)>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct RowText<'a> {
    pub(crate) line: &'a [u8],
    pub(crate) words: &'a [Word<'a>],
}

#[derive(Debug)]
pub(crate) struct Word<'a> {
    pub(crate) bytes: &'a [u8],
    end: usize,
}

impl Word<'_> {
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    }
}

pub(crate) fn words(line: &[u8]) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some((word, behind)) = next_word(rest) {
        words.push(Word { bytes: word, end: line.len() - behind.len() });
        rest = behind;
    }
    words
}

pub(crate) struct Place {
    /// End of the part that identifies the line.
    pub(crate) key_end: usize,
    pub(crate) first_word: usize,
    pub(crate) label: Option<(String, String)>,
    pub(crate) instance: Option<Arc<str>>,
}

/// Finds the values in a line, if it is the wanted row.
pub(crate) fn place(form: Form, words: &[Word<'_>], want: &Wanted) -> Option<Place> {
    let key_word = match form {
        Form::Values => {
            return (want.field.row == Row::Only).then_some(Place {
                key_end: 0,
                first_word: 0,
                label: None,
                instance: None,
            });
        }
        Form::Keyed | Form::Operations => 0,
        // Some kernels end no line of io.stat for a device that has counted nothing: `7:0 8:0 rbytes=4096`.
        Form::Pairs => {
            let first_pair = words.iter().position(|word| word.bytes.contains(&b'='));
            first_pair.unwrap_or(words.len()).checked_sub(1)?
        }
        Form::KeyedAt(word) => word,
    };
    let written = std::str::from_utf8(words.get(key_word)?.bytes).ok()?;
    let key = written.strip_suffix(':').unwrap_or(written);
    let mut label = None;
    let mut instance = None;
    match want.field.row {
        Row::Only => return None,
        Row::Key(wanted) if wanted != key => return None,
        Row::Key(_) => {}
        Row::Instance(prefix) => match &want.definition.instance {
            Some(wanted) if key.strip_prefix(prefix) != Some(wanted) => return None,
            Some(_) => {}
            // Lines with a longer prefix belong to the other family.
            None if prefix.is_empty() && key.starts_with("nr_") => return None,
            None => instance = Some(key.strip_prefix(prefix).filter(|rest| !rest.is_empty())?.into()),
        },
        Row::Each { label: name, prefix, numeric } => {
            let value = key.strip_prefix(prefix)?;
            if value.is_empty() || (numeric && !value.bytes().all(|digit| digit.is_ascii_digit())) {
                return None;
            }
            // The header lines of net/dev have no colon.
            if form == Form::Keyed && !numeric && written == key {
                return None;
            }
            label = Some((name.to_owned(), value.to_owned()));
        }
    }
    let mut last_key_word = key_word;
    if form == Form::Operations {
        // `254:0 Read 4096`: the operation is part of the key.
        let Cell::Named(operation) = want.field.cell else { return None };
        if words.get(1)?.bytes != operation.as_bytes() {
            return None;
        }
        last_key_word = 1;
    }
    // The byte behind it is included, so that `anon` does not match `anon_thp`.
    Some(Place { key_end: words.get(last_key_word)?.end + 1, first_word: last_key_word + 1, label, instance })
}

/// First words of lines that are no quantity: the time at which the machine booted, and a setting.
const NO_QUANTITY: [&str; 2] = ["btime", "oom_kill_disable"];

/// Title of `cpuacct.usage_all`.
const TITLE: &[u8] = b"cpu user system";

/// Operations of blkio that count others again.
const REPEATED: [&str; 3] = ["Sync", "Async", "Total"];

/// Rules by which the lines of a file are known, whether their values are wanted or not.
pub(crate) struct KnownLines<'a> {
    form: Form,
    /// Those of the catalogue for the file; none for a file that it does not have.
    rules: Vec<&'static Wanted>,
    /// A value of each device, which makes its line known, in a file with a line for each device: `io.stat`,
    /// `diskstats`, `net/dev`.
    of_device: Option<&'a Wanted>,
    devices: BTreeSet<String>,
}

impl<'a> KnownLines<'a> {
    pub(crate) fn of(form: Form, wanted: &'a [Wanted]) -> Self {
        let is_of_devices = matches!(form, Form::Pairs | Form::Keyed | Form::KeyedAt(_));
        Self {
            form,
            rules: rules(form, wanted),
            of_device: wanted
                .iter()
                .find(|want| matches!(want.field.row, Row::Each { numeric: false, .. }))
                .filter(|_| is_of_devices),
            devices: BTreeSet::new(),
        }
    }

    /// False for a line that no rule takes, and that is not left out by name: it should be of a device but
    /// names none, or one that had a line before, or its key is not in the catalogue.
    pub(crate) fn knows(&mut self, line: &[u8], words: &[Word<'_>]) -> bool {
        let form = self.form;
        // The titles of net/dev are separated by bars.
        if words.is_empty() || form == Form::Keyed && line.contains(&b'|') {
            return true;
        }
        let is_at = |position: usize, names: &[&str]| {
            words.get(position).is_some_and(|word| names.iter().any(|name| name.as_bytes() == word.bytes))
        };
        let is_left_out = match form {
            Form::Operations => is_at(0, &REPEATED) || is_at(1, &REPEATED),
            Form::Keyed => is_at(0, &NO_QUANTITY) || line.trim_ascii() == TITLE,
            Form::Values | Form::KeyedAt(_) | Form::Pairs => false,
        };
        if let Some(want) = self.of_device.filter(|_| !is_left_out) {
            let label = place(form, words, want).and_then(|place| place.label);
            return label.is_some_and(|(key, value)| {
                Labels::new(vec![(key, value.clone())]).is_ok() && self.devices.insert(value)
            });
        }
        is_left_out
            || self.rules.is_empty()
            || self.rules.iter().any(|rule| place(form, words, rule).is_some())
    }
}

/// All values that the catalogue has of the file with the wanted ones.
fn rules(form: Form, wanted: &[Wanted]) -> Vec<&'static Wanted> {
    type Rules = HashMap<(Hierarchy, &'static str), Vec<Wanted>>;
    static RULES: LazyLock<Rules> = LazyLock::new(|| {
        let mut rules = Rules::new();
        for metric in catalogue::all() {
            for origin in metric.origins {
                if let Origin::Text { file, field } = origin {
                    let definition = Definition { metric, instance: None };
                    let of_file = rules.entry((file.hierarchy, file.path)).or_default();
                    of_file.push(Wanted { definition, field: *field });
                }
            }
        }
        rules
    });
    let files = wanted.first().into_iter().flat_map(|want| files_of(form, want));
    let of_all =
        files.filter(|file| wanted.iter().all(|want| files_of(form, want).any(|of_want| of_want == *file)));
    of_all.filter_map(|file| RULES.get(&file)).flatten().collect()
}

/// Files of this form that have a value at the wanted address: a few values have the same in both versions of
/// cgroups.
fn files_of(form: Form, want: &Wanted) -> impl Iterator<Item = (Hierarchy, &'static str)> + use<> {
    let field = want.field;
    want.definition.metric.origins.iter().filter_map(move |origin| match origin {
        Origin::Text { file, field: of_file } if file.form == form && *of_file == field => {
            Some((file.hierarchy, file.path))
        }
        Origin::Text { .. } | Origin::Perf(_) | Origin::Source(_) => None,
    })
}

pub(crate) fn next_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    let line = line.get(start..)?;
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\n')).unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(end)?;
    (!word.is_empty()).then_some((word, rest))
}

pub(crate) fn count_words(line: &[u8]) -> usize {
    std::iter::successors(next_word(line), |(_, behind)| next_word(behind)).count()
}
