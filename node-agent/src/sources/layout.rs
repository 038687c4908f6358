//! Where the wanted values stand in the text of a kernel file: found once with care, then checked by key at every read.
//!
//! A kernel file's lines hardly ever move against each other, but their numbers change width all the time. So each
//! wanted line is looked for where it stood last, moved by as much as the line before it has moved; its key is compared
//! before anything there is believed; and only where the key does not fit is the text searched.

use std::collections::BTreeSet;
use std::fmt;

use polymeter_proto::catalogue::{Cell, Definition, Field, Form, Row, Scale};
use polymeter_proto::series::Labels;

use super::number;
use super::reading::Reading;

/// A metric that a source can give: one value of each reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The metric.
    pub definition: Definition,
    /// The labels of its series.
    pub labels: Labels,
}

/// A metric that is wanted from a file, and where it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The metric, or a whole family.
    pub definition: Definition,
    /// Its place in the file's form.
    pub field: Field,
}

/// Text that is not what the kernel's documentation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    line: usize,
    text: String,
    metric: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}` has no value for {}", self.line, self.text, self.metric)
    }
}

impl std::error::Error for ParseError {}

/// How the values of one file are found in its text.
///
/// Lines, keys and values lie each in one piece, in the order in which they are read: with many jobs this is what does not
/// stay in the nearest cache between two ticks.
#[derive(Debug, Default)]
pub struct Layout {
    lines: Vec<Line>,
    /// How the lines begin, up to their first values: all keys one after the other.
    keys: Vec<u8>,
    /// What is wanted of the lines, one after the other.
    values: Vec<Value>,
    slots: Vec<Slot>,
    /// How many lines the text had; another number means that a device came or went.
    text_lines: usize,
}

/// A wanted line.
#[derive(Debug)]
struct Line {
    /// Where it began in the last text.
    offset: usize,
    key_len: u32,
    wants: Wants,
}

/// What is wanted of a line.
#[derive(Debug, Clone, Copy)]
enum Wants {
    /// The whole number right behind the key: most lines are no more than that. It is one of the values as well, which is
    /// looked at when the line has something else there.
    Number { slot: u32, factor: u64 },
    /// So many of the layout's values.
    Values { count: u32 },
    /// Nothing so far, when so many words stood behind the key; another number may mean that values came.
    Watched { words: u32 },
}

/// A line that is being looked at for the first time.
#[derive(Debug, Default)]
struct Found {
    key: Box<[u8]>,
    watched: Option<usize>,
    values: Vec<Value>,
}

/// A wanted value of a line.
#[derive(Debug)]
struct Value {
    /// Its word behind the key, counted from 0.
    word: usize,
    /// What stands before the number in that word: `total=`.
    prefix: Box<[u8]>,
    field: Field,
    slot: u32,
}

/// Whether a text still has the lines that the layout was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It has as many lines, and all that are wanted.
    Same,
    /// Lines came or went: what is still there was read, and the layout should be made anew.
    Changed,
}

impl Layout {
    /// Finds the `wanted` values in `text`. What is not there has no slot.
    ///
    /// # Errors
    /// When a line has the right key, and no number where the value should be.
    pub fn discover(
        form: Form,
        text: &[u8],
        wanted: &[Wanted],
        path_labels: &[(String, String)],
    ) -> Result<Self, ParseError> {
        let text = whole_lines(text);
        let mut layout = Self::default();
        let mut seen = Seen::new();
        let mut offset = 0;
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            layout.text_lines = number;
            let words = words(line);
            let mut found = Found::default();
            for want in wanted {
                let row = RowText { line, words: &words };
                layout.discover_in(form, row, want, path_labels, &mut seen, &mut found).map_err(|()| {
                    ParseError {
                        line: number,
                        text: String::from_utf8_lossy(line).trim_end().chars().take(80).collect(),
                        metric: want.definition.name(),
                    }
                })?;
            }
            layout.keep(offset, found);
            offset += line.len();
        }
        Ok(layout)
    }

    /// Appends the line that begins at `offset`, if anything in it is wanted.
    fn keep(&mut self, offset: usize, found: Found) {
        let short = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let wants = match (found.watched, &*found.values) {
            (Some(words), _) => Wants::Watched { words: short(words) },
            (None, []) => return,
            (None, [Value { word: 0, prefix, field: Field { scale: Scale::Times(factor), .. }, slot }])
                if prefix.is_empty() =>
            {
                Wants::Number { slot: *slot, factor: *factor }
            }
            (None, values) => Wants::Values { count: short(values.len()) },
        };
        self.lines.push(Line { offset, key_len: short(found.key.len()), wants });
        self.keys.extend_from_slice(&found.key);
        self.values.extend(found.values);
    }

    /// What the values of a reading are.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn discover_in(
        &mut self,
        form: Form,
        row: RowText<'_>,
        want: &Wanted,
        path_labels: &[(String, String)],
        seen: &mut Seen,
        found: &mut Found,
    ) -> Result<(), ()> {
        let RowText { line, words } = row;
        let Some(place) = place(form, words, want) else { return Ok(()) };
        let key = line.get(..place.key_end.min(line.len())).ok_or(())?;
        let cells = words.len().saturating_sub(place.first_word);
        if form == Form::Pairs && found.values.is_empty() {
            // `254:0 ` or `254:0 cost.usage=0` in io.stat: a device without I/O so far, whose values may come.
            found.key = key.into();
            found.watched = Some(cells);
        }
        for cell in 0..cells {
            let Some(word) = words.get(place.first_word + cell) else { continue };
            let (prefix, label): (&[u8], _) = match want.field.cell {
                Cell::Word(wanted) if wanted == place.first_word + cell => (b"", None),
                Cell::Named(_) if form == Form::Operations && cell == 0 => (b"", None),
                Cell::Named(name) if form == Form::Pairs && word.has_name(name) => {
                    (word.bytes.get(..=name.len()).unwrap_or_default(), None)
                }
                Cell::Each(label) => (b"", Some((label.to_owned(), cell.to_string()))),
                Cell::Word(_) | Cell::Named(_) => continue,
            };
            let number = word.bytes.get(prefix.len()..).unwrap_or_default();
            number::parse(number, want.field.scale).map_err(|number::NotANumber| ())?;
            let definition = Definition {
                metric: want.definition.metric,
                instance: place.instance.clone().or_else(|| want.definition.instance.clone()),
            };
            let labels = path_labels.iter().cloned().chain(place.label.clone()).chain(label).collect();
            // A name that is no label, such as a network interface called `"`, has no series.
            let Ok(labels) = Labels::new(labels) else { continue };
            if !seen.insert((definition.name(), labels.clone())) {
                continue;
            }
            let slot = Slot { definition, labels };
            found.key = key.into();
            found.watched = None;
            found.values.push(Value {
                word: cell,
                prefix: prefix.into(),
                field: want.field,
                slot: u32::try_from(self.slots.len()).map_err(|_too_many| ())?,
            });
            self.slots.push(slot);
        }
        found.values.sort_by_key(|value| value.word);
        Ok(())
    }

    /// Reads the values out of `text` into `reading`, which has a place for each slot. Does not allocate.
    pub fn read(&mut self, text: &[u8], reading: &mut Reading) -> Fit {
        reading.clear();
        let is_whole = text.last().is_none_or(|byte| *byte == b'\n');
        let text = whole_lines(text);
        let mut fit = Fit::Same;
        let (mut cursor, mut moved) = (0_usize, 0_isize);
        let (mut keys, mut values) = (self.keys.as_slice(), self.values.as_slice());
        for line in &mut self.lines {
            let expected = line.offset.checked_add_signed(moved).unwrap_or(0);
            let key = take(&mut keys, line.key_len);
            let wanted = match line.wants {
                Wants::Values { count } => take(&mut values, count),
                Wants::Number { .. } => take(&mut values, 1),
                Wants::Watched { .. } => &[],
            };
            let Some(found) = locate(text, key, expected, cursor) else {
                fit = Fit::Changed;
                continue;
            };
            moved += found.cast_signed() - expected.cast_signed();
            line.offset = found;
            cursor = found + key.len();
            let rest = text.get(cursor..).unwrap_or_default();
            let complete = match line.wants {
                Wants::Watched { words } => count_words(rest) == words as usize,
                Wants::Values { .. } => read_line(rest, wanted, reading),
                Wants::Number { slot, factor } => {
                    match number::leading(rest).and_then(|number| number.checked_mul(factor)) {
                        Some(bits) => {
                            reading.set(slot, bits);
                            true
                        }
                        None => read_line(rest, wanted, reading),
                    }
                }
            };
            if !complete {
                fit = Fit::Changed;
            }
        }
        if is_whole && count_lines(text) == self.text_lines { fit } else { Fit::Changed }
    }
}

/// The next `count` of what lies one after the other.
fn take<'a, T>(rest: &mut &'a [T], count: u32) -> &'a [T] {
    let (taken, behind) = rest.split_at_checked(count as usize).unwrap_or_default();
    *rest = behind;
    taken
}

/// The text without a last line that does not end. The kernel ends every line, so that one was cut off, and so may be
/// the number at its end.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

/// Where `key` begins a line: at `expected`, or else behind `cursor`, or else anywhere.
fn locate(text: &[u8], key: &[u8], expected: usize, cursor: usize) -> Option<usize> {
    if begins_line_at(text, expected) && text.get(expected..).is_some_and(|rest| begins_with(rest, key)) {
        return Some(expected);
    }
    search(text, key, cursor).or_else(|| search(text, key, 0))
}

/// Whether `text` begins with `key`, by words of eight bytes of which the last two may overlap: keys have 5 to 30
/// bytes, for which a call of memcmp takes longer than the comparison.
fn begins_with(text: &[u8], key: &[u8]) -> bool {
    let Some(head) = text.get(..key.len()) else { return false };
    // As integers, for of arrays in a slice the compiler makes a call of memcmp again.
    let same = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) == u64::from_ne_bytes(*b);
    match (head.last_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(end), Some(wanted)) => {
            same((end, wanted)) && head.as_chunks().0.iter().zip(key.as_chunks().0).all(same)
        }
        _ => head.iter().eq(key),
    }
}

fn begins_line_at(text: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_none_or(|before| text.get(before) == Some(&b'\n'))
}

fn search(text: &[u8], key: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = text.get(at..)?;
        if begins_line_at(text, at) && begins_with(rest, key) {
            return Some(at);
        }
        at += rest.iter().position(|byte| *byte == b'\n')? + 1;
    }
}

/// Reads the wanted values of a line, and says whether all were there.
fn read_line(line: &[u8], values: &[Value], reading: &mut Reading) -> bool {
    let mut wanted = values.iter();
    let mut next = wanted.next();
    let mut rest = line;
    for position in 0.. {
        let Some(value) = next else { return true };
        let Some((word, behind)) = next_word(rest) else { return false };
        rest = behind;
        if value.word != position {
            continue;
        }
        let number = word.strip_prefix(&*value.prefix).map(|number| number::parse(number, value.field.scale));
        match number {
            Some(Ok(Some(bits))) => reading.set(value.slot, bits),
            Some(Ok(None)) => {}
            Some(Err(_)) | None => return false,
        }
        next = wanted.next();
    }
    true
}

/// The next word of a line, and what follows it; none at the line's end.
fn next_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    let line = line.get(start..)?;
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\n')).unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(end)?;
    (!word.is_empty()).then_some((word, rest))
}

fn count_lines(text: &[u8]) -> usize {
    // Summing bytes in short chunks is a form that the compiler turns into vector instructions.
    text.chunks(128)
        .map(|chunk| usize::from(chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>()))
        .sum()
}

fn count_words(line: &[u8]) -> usize {
    std::iter::successors(next_word(line), |(_, behind)| next_word(behind)).count()
}

/// Metrics and labels that have a slot: the first place counts.
type Seen = BTreeSet<(String, Labels)>;

/// A line, and its words.
#[derive(Debug, Clone, Copy)]
struct RowText<'a> {
    line: &'a [u8],
    words: &'a [Word<'a>],
}

/// A word of a line, and where it ends.
#[derive(Debug)]
struct Word<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl Word<'_> {
    fn has_name(&self, name: &str) -> bool {
        self.bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    }
}

fn words(line: &[u8]) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some((word, behind)) = next_word(rest) {
        words.push(Word { bytes: word, end: line.len() - behind.len() });
        rest = behind;
    }
    words
}

/// Where a wanted row's values begin in a line that is such a row.
struct Place {
    /// The end of what identifies the line.
    key_end: usize,
    /// The first word behind the key.
    first_word: usize,
    label: Option<(String, String)>,
    instance: Option<Box<str>>,
}

/// Whether a line is the wanted row, and where its values begin.
fn place(form: Form, words: &[Word<'_>], want: &Wanted) -> Option<Place> {
    let key_word = match form {
        Form::Values => {
            return (want.field.row == Row::Only).then_some(Place {
                key_end: 0,
                first_word: 0,
                label: None,
                instance: None,
            });
        }
        Form::Keyed | Form::Pairs | Form::Operations => 0,
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
            // The head-lines of net/dev have no colon.
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
    // The byte behind it too, or else `anon` would be found in `anon_thp`.
    Some(Place { key_end: words.get(last_key_word)?.end + 1, first_word: last_key_word + 1, label, instance })
}

/// Reads all `wanted` values of `text` in one go: what tests and rare readers use.
///
/// # Errors
/// As [`Layout::discover`].
pub fn parse(form: Form, text: &[u8], wanted: &[Wanted]) -> Result<Vec<(Slot, Option<u64>)>, ParseError> {
    let mut layout = Layout::discover(form, text, wanted, &[])?;
    let mut reading = Reading::absent(layout.slots.len());
    layout.read(text, &mut reading);
    Ok(layout.slots.into_iter().zip(reading.iter()).collect())
}
