//! Places of the wanted values in the text of a kernel file: found once with care, then checked by key at
//! every read.
//!
//! The lines of a kernel file rarely move relative to each other, but their numbers change width all the
//! time. Therefore each wanted line is expected at its last position, shifted like the line before it; its
//! key is compared before any value is taken; and the text is searched only if the key differs.

mod rows;

use polymeter_proto::catalogue::{Cell, Definition, Field, Form, Scale};
use polymeter_proto::series::Labels;

use super::number;
use super::reading::Reading;
use super::unknown_lines::{UnknownLines, beginning};
use rows::{KnownLines, RowText, Seen, count_words, next_word, place, words};

pub use super::slot::{Slot, Wanted};

/// A line with a wanted key but no number in the place of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: cannot find a value for {metric} in `{text}`")]
pub struct ParseError {
    line: usize,
    text: String,
    metric: String,
}

/// Places of the values of one file in its text.
///
/// Lines, keys and values are each contiguous, in the order in which they are read: with many jobs they do
/// not stay in the nearest cache between two ticks.
#[derive(Debug, Default)]
pub struct Layout {
    lines: Vec<Line>,
    /// Beginnings of the lines, up to their first values: all keys one after the other.
    keys: Vec<u8>,
    values: Vec<Value>,
    slots: Vec<Slot>,
    /// Number of lines of the text; a different number means that a device was added or removed.
    text_lines: usize,
    unknown: UnknownLines,
}

#[derive(Debug)]
struct Line {
    /// Offset in the last text.
    offset: usize,
    key_len: u32,
    wants: Wants,
}

#[derive(Debug, Clone, Copy)]
enum Wants {
    /// Integer right behind the key, as in most lines. It is also one of the values, which is used if the
    /// line has something else there.
    Number { slot: u32, factor: u64 },
    /// This many of the layout's values.
    Values { count: u32 },
    /// None yet, with this many words behind the key; a different number of words may mean that values were
    /// added.
    Watched { words: u32 },
}

#[derive(Debug, Default)]
struct Found {
    key: Box<[u8]>,
    watched: Option<usize>,
    values: Vec<Value>,
}

#[derive(Debug)]
struct Value {
    /// Word behind the key, counted from 0.
    word: usize,
    /// Text before the number in that word: `total=`.
    prefix: Box<[u8]>,
    field: Field,
    slot: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The same number of lines, and all wanted ones.
    Same,
    /// Lines were added or removed: the remaining ones were read, and the layout should be made anew.
    Changed,
}

impl Layout {
    /// Finds the `wanted` values in `text`. Missing values have no slot. A line with the right key but no
    /// number in the place of the value is an error.
    pub fn discover(
        form: Form,
        text: &[u8],
        wanted: &[Wanted],
        path_labels: &[(String, String)],
    ) -> Result<Self, ParseError> {
        let text = whole_lines(text);
        let mut layout = Self::default();
        let (mut seen, mut known) = (Seen::new(), KnownLines::of(form, wanted));
        let mut offset = 0;
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            layout.text_lines = number;
            let words = words(line);
            let mut found = Found::default();
            for want in wanted {
                let row = RowText { line, words: &words };
                layout.discover_in(form, row, want, path_labels, &mut seen, &mut found).map_err(|()| {
                    ParseError { line: number, text: beginning(line), metric: want.definition.name() }
                })?;
            }
            if !known.knows(line, &words) {
                layout.unknown.add(line);
            }
            layout.keep(offset, found);
            offset += line.len();
        }
        Ok(layout)
    }

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

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub const fn unknown(&self) -> &UnknownLines {
        &self.unknown
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
            // `254:0 ` or `254:0 cost.usage=0` in io.stat: a device without I/O so far, whose values may
            // follow.
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
            let Ok(labels) = Labels::escaped(labels) else { continue };
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

fn take<'a, T>(rest: &mut &'a [T], count: u32) -> &'a [T] {
    let (taken, behind) = rest.split_at_checked(count as usize).unwrap_or_default();
    *rest = behind;
    taken
}

/// Cuts off an incomplete last line. The kernel ends every line, so such a line was truncated, and the number
/// at its end may be, too.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

/// Offset of a line that begins with `key`: `expected`, else one behind `cursor`, else any.
fn locate(text: &[u8], key: &[u8], expected: usize, cursor: usize) -> Option<usize> {
    if begins_line_at(text, expected) && text.get(expected..).is_some_and(|rest| begins_with(rest, key)) {
        return Some(expected);
    }
    search(text, key, cursor).or_else(|| search(text, key, 0))
}

/// Compares the beginning of `text` with `key` by words of eight bytes; the last two may overlap. Keys have 5
/// to 30 bytes: a call of memcmp takes longer than the comparison.
fn begins_with(text: &[u8], key: &[u8]) -> bool {
    let Some(head) = text.get(..key.len()) else { return false };
    // Compared as integers: for arrays in a slice the compiler would call memcmp again.
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

/// Reads the wanted values of a line. Returns true if all were there.
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

fn count_lines(text: &[u8]) -> usize {
    // Summing bytes in short chunks is a form that the compiler turns into vector instructions.
    text.chunks(128)
        .map(|chunk| usize::from(chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>()))
        .sum()
}

/// Reads all `wanted` values of `text` at once, for tests and rare reads.
pub fn parse(form: Form, text: &[u8], wanted: &[Wanted]) -> Result<Vec<(Slot, Option<u64>)>, ParseError> {
    let mut layout = Layout::discover(form, text, wanted, &[])?;
    let mut reading = Reading::absent(layout.slots.len());
    layout.read(text, &mut reading);
    Ok(layout.slots.into_iter().zip(reading.iter()).collect())
}
