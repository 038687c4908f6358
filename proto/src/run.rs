//! Identity of a command that `polymeter run` sampled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::text::{Unprintable, escape, starts_with_escape};

/// What was run, where, and in which environment. All texts are [`escape`]d: replacing each `\xNN` by its
/// byte gives the original bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stated")]
pub struct Run {
    /// Command and arguments; empty if the user asked not to store them.
    pub command: Vec<String>,
    /// True if a text was longer than its limit and was cut.
    pub is_cut: bool,
    pub directory: Option<String>,
    pub host: Option<String>,
    /// Environment variables that the user chose, by name, without those that were not set.
    pub environment: BTreeMap<String, String>,
}

/// A run as somebody stated it: of any length, with any characters.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Stated {
    command: Vec<String>,
    is_cut: bool,
    directory: Option<String>,
    host: Option<String>,
    environment: BTreeMap<String, String>,
}

impl From<Stated> for Run {
    fn from(stated: Stated) -> Self {
        let mut room = Room { bytes: limits::RUN_COMMAND_BYTES, is_cut: stated.is_cut };
        let command: Vec<String> = stated.command.iter().map_while(|argument| room.take(argument)).collect();
        room.bytes = limits::RUN_ENVIRONMENT_BYTES;
        let variables = stated.environment.iter();
        let environment =
            variables.map_while(|(name, value)| Some((room.take(name)?, room.take(value)?))).collect();
        room.bytes = limits::RUN_DIRECTORY_BYTES;
        let directory = stated.directory.and_then(|text| room.take(&text));
        room.bytes = limits::RUN_DIRECTORY_BYTES;
        let host = stated.host.and_then(|text| room.take(&text));
        Self { command, is_cut: room.is_cut, directory, host, environment }
    }
}

struct Room {
    bytes: usize,
    is_cut: bool,
}

impl Room {
    /// Returns as much of the text as there is room for; none without any room. Characters that are not
    /// printable become `?`.
    fn take(&mut self, text: &str) -> Option<String> {
        /// Bytes that count for each text beside its own, which limits the number of empty texts.
        const EACH: usize = 8;
        let Some(room) = self.bytes.checked_sub(EACH) else {
            self.is_cut = true;
            return None;
        };
        let mut taken = String::new();
        for (at, c) in text.char_indices() {
            let c = if Unprintable::of(c).is_some() { '?' } else { c };
            // An escape is taken as a whole.
            let is_escape =
                c == '\\' && starts_with_escape(text.as_bytes().get(at + 1..).unwrap_or_default());
            let needed = if is_escape { 4 } else { c.len_utf8() };
            if taken.len() + needed > room {
                self.is_cut = true;
                self.bytes = 0;
                return Some(taken);
            }
            taken.push(c);
        }
        self.bytes = room - taken.len();
        Some(taken)
    }
}

impl Run {
    /// Describes a command that runs in `directory` on `host`, from the bytes of the system.
    pub fn of<'a>(
        command: impl Iterator<Item = &'a [u8]>,
        directory: Option<&[u8]>,
        host: Option<&[u8]>,
        environment: impl Iterator<Item = (&'a str, Vec<u8>)>,
    ) -> Self {
        let stated = Stated {
            command: command.map(escape).collect(),
            is_cut: false,
            directory: directory.map(escape),
            host: host.map(escape),
            environment: environment.map(|(name, value)| (escape(name.as_bytes()), escape(&value))).collect(),
        };
        stated.into()
    }

    /// Returns a line that a shell reads as the same arguments; none if the command is not stored.
    pub fn command_line(&self) -> Option<String> {
        let line = self.command.iter().map(|argument| shell_word(argument)).collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then_some(line)
    }

    /// Returns assignments that a shell reads as the same values.
    pub fn assignments(&self) -> Vec<String> {
        self.environment.iter().map(|(name, value)| shell_word(&format!("{name}={value}"))).collect()
    }
}

/// Returns a word that bash, ksh and zsh read as the original bytes of an escaped text.
pub fn shell_word(escaped: &str) -> String {
    if !escaped.is_empty()
        && escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_@%+=:,./-^".contains(&byte))
    {
        return escaped.to_owned();
    }
    let is_escape = |at: usize, c: char| {
        c == '\\' && starts_with_escape(escaped.as_bytes().get(at + 1..).unwrap_or_default())
    };
    if !escaped.char_indices().any(|(at, c)| is_escape(at, c)) {
        return format!("'{}'", escaped.replace('\'', r"'\''"));
    }
    let mut word = "$'".to_owned();
    for (at, c) in escaped.char_indices() {
        if matches!(c, '\\' | '\'') && !is_escape(at, c) {
            word.push('\\');
        }
        word.push(c);
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::strategy;
    use proptest::prelude::*;

    fn of(command: &[&[u8]]) -> Run {
        Run::of(
            command.iter().copied(),
            Some(b"/srv/\xe9"),
            Some(b"n1"),
            [("A", b"x y".to_vec())].into_iter(),
        )
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let run = of(&[b"./a.out", b"", b"a b", b"it's", b"\x1b[0m'\\n", b"\\x41", b"zo\xc3\xab"]);
        let line = r"./a.out '' 'a b' 'it'\''s' $'\x1b[0m\'\\n' $'\x5cx41' 'zoë'";
        assert_eq!(run.command_line().as_deref(), Some(line));
        assert_eq!(run.assignments(), ["'A=x y'"]);
        assert_eq!((run.directory.as_deref(), run.is_cut), (Some(r"/srv/\xe9"), false));
        assert_eq!(of(&[]).command_line(), None);
    }

    #[test]
    fn what_is_too_long_is_cut() {
        for arguments in [vec![b"x".as_slice(); 100_000], vec![b"".as_slice(); 100_000]] {
            let run = of(&arguments);
            assert!(
                run.is_cut && run.command.len() < 1000 && run.command.len() > 100,
                "{}",
                run.command.len()
            );
        }
        let escapes = vec![b'\n'; limits::RUN_COMMAND_BYTES];
        let run = of(&[b"sh", &escapes, b"behind"]);
        assert!(run.is_cut && run.command.len() == 2 && run.command[1].len() > 4000);
        assert_eq!(run.command[1].replace(r"\x0a", ""), "");
        assert_eq!(serde_json::from_value::<Run>(serde_json::to_value(&run).unwrap()).unwrap(), run);
    }

    proptest! {
        #[test]
        fn a_stated_run_is_printable_and_bounded(texts in prop::collection::vec(strategy::hostile(), 0..30)) {
            let environment: BTreeMap<&String, &String> = texts.iter().zip(texts.iter().rev()).collect();
            let stated = serde_json::json!({
                "command": texts, "directory": texts.first(), "host": texts.last(), "environment": environment,
            });
            let run: Run = serde_json::from_value(stated).unwrap();
            let mut all = run.command.iter().chain(&run.directory).chain(&run.host);
            prop_assert!(all.all(|text| text.chars().all(|c| Unprintable::of(c).is_none())));
            prop_assert!(serde_json::to_string(&run).unwrap().len() < 10 * limits::RUN_COMMAND_BYTES);
            let again: Run = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
            prop_assert_eq!(again, run);
        }
    }
}
