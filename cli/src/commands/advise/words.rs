//! Directives of a job script, as words of a command line. Pure.

/// Words of each line that begins with `prefix`, such as `#SBATCH`. With `ends` they end at the first
/// command, behind which Slurm reads no further ones.
pub(super) fn directives(script: &str, prefix: &str, ends: bool) -> Vec<Vec<String>> {
    let lines = script
        .lines()
        .take_while(|line| !ends || line.trim().is_empty() || line.trim_start().starts_with('#'));
    let of_prefix = lines.filter_map(|line| line.strip_prefix(prefix));
    of_prefix.filter(|rest| rest.starts_with(char::is_whitespace)).map(words).collect()
}

/// Divides a line into words, as a shell does without variables: quotes join, an unquoted `#` begins a
/// comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Long name of an option, and its letter if it has one.
pub(super) type Known = (&'static str, Option<char>);

/// Values of the known options in the words of a line, with their long names. A long name may be shortened as
/// long as no other known one begins so; an option without a value has an empty one.
pub(super) fn options(words: &[String], known: &[Known]) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (name, attached) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            (by_name(name, known), value)
        } else if let Some(short) = word.strip_prefix('-') {
            let mut letters = short.chars();
            let letter = letters.next();
            let rest = Some(letters.as_str()).filter(|rest| !rest.is_empty());
            (known.iter().find(|(_, of)| of.is_some() && *of == letter).map(|(name, _)| *name), rest)
        } else {
            continue;
        };
        let Some(name) = name else { continue };
        let value = match attached {
            Some(value) => value.to_owned(),
            None => words.next_if(|next| !next.starts_with('-')).cloned().unwrap_or_default(),
        };
        found.push((name, value));
    }
    found
}

fn by_name(name: &str, known: &[Known]) -> Option<&'static str> {
    if let Some((exact, _)) = known.iter().find(|(of, _)| *of == name) {
        return Some(exact);
    }
    let mut beginning = known.iter().filter(|(of, _)| !name.is_empty() && of.starts_with(name));
    beginning.next().filter(|_| beginning.next().is_none()).map(|(of, _)| *of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] =
        &[("ntasks", Some('n')), ("ntasks-per-node", None), ("time", Some('t')), ("job-name", Some('J'))];

    fn of(line: &str) -> Vec<(&'static str, String)> {
        options(&words(line), KNOWN)
    }

    #[test]
    fn options_have_all_forms_of_getopt() {
        for (line, expected) in [
            (" -n 4", ("ntasks", "4")),
            (" -n4", ("ntasks", "4")),
            (" --ntasks=4", ("ntasks", "4")),
            (" --ntasks 4  # four", ("ntasks", "4")),
            (" --ntasks-per=2", ("ntasks-per-node", "2")),
            ("\t--job-name=\"my job # 7\"", ("job-name", "my job # 7")),
            (" -J 'a b'", ("job-name", "a b")),
            (" -o out.txt --exclusive -t 1-02:00:00 --unknown 3", ("time", "1-02:00:00")),
            (" -t", ("time", "")),
        ] {
            assert_eq!(of(line), [(expected.0, expected.1.to_owned())], "{line}");
        }
        for line in ["", " nothing", " --nt=3", " --", " -", " -x 3", " # -n 4", " --time-min=3"] {
            assert_eq!(of(line), [], "{line}");
        }
    }

    #[test]
    fn directives_end_at_the_first_command_where_the_scheduler_says_so() {
        let script =
            "#!/bin/sh\n#SBATCH -n 1\n\n# text\n#SBATCHED -n 2\n#SBATCH\t-n 3\nsrun x\n#SBATCH -n 4\n";
        let count = |ends| directives(script, "#SBATCH", ends).len();
        assert_eq!((count(true), count(false)), (2, 3));
    }
}
