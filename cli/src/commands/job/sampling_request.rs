//! Wishes as people write them when they submit a job: `cpu.*=10ms, perf.instructions=100ms for 1h`. Pure.

use std::collections::BTreeMap;

/// What stands before wishes in a comment that may say other things, too.
const MARK: &str = "polymeter:";

/// Bytes of one job's wishes: anybody may write anything into a comment.
const BYTES: usize = 4096;

/// Wishes, taken apart; whether there are such metrics and periods is the agent's to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wished {
    /// Selectors and periods.
    pub(super) plan: BTreeMap<String, String>,
    /// For how long.
    pub(super) duration: Option<String>,
}

/// The part of a comment that is wishes, up to a semicolon or the line's end.
pub(super) fn in_comment(comment: &str) -> Option<&str> {
    let (_, behind) = comment.split_once(MARK)?;
    behind.split([';', '\n']).next()
}

/// Takes wishes apart.
///
/// # Errors
/// Says what is no wish.
pub(super) fn parse(text: &str) -> Result<Wished, String> {
    if text.len() > BYTES {
        return Err(format!("wishes have at most {BYTES} bytes"));
    }
    let mut words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let mut wished = Wished::default();
    while let Some(word) = words.next() {
        if word == "for" {
            let duration = words.next().ok_or("`for` says no time: write `for 1h`")?;
            wished.duration = Some(duration.to_owned());
            continue;
        }
        let (selector, period) =
            word.split_once('=').ok_or_else(|| format!("`{word}` names no period: write {word}=10ms"))?;
        wished.plan.insert(selector.to_owned(), period.to_owned());
    }
    Ok(wished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_a_list_and_a_time() {
        let wished = parse(" cpu.*=10ms, perf.instructions=100ms  for 1h ").unwrap();
        assert_eq!(wished.plan.len(), 2);
        assert_eq!(wished.plan["perf.instructions"], "100ms");
        assert_eq!(wished.duration.as_deref(), Some("1h"));
        assert_eq!(parse("cpu.*=10ms,memory.anon=1s").unwrap().plan.len(), 2);
        assert_eq!(parse("").unwrap(), Wished::default());
    }

    #[test]
    fn what_is_no_wish_is_told() {
        assert!(parse("cpu.*").unwrap_err().contains("cpu.*=10ms"));
        assert!(parse("cpu.*=1s for").unwrap_err().contains("for 1h"));
        assert!(parse(&"x=1s ".repeat(2000)).unwrap_err().contains("at most"));
    }

    #[test]
    fn a_comment_may_say_other_things() {
        assert_eq!(in_comment("polymeter: a=1s"), Some(" a=1s"));
        assert_eq!(in_comment("grant 7; polymeter: a=1s; more"), Some(" a=1s"));
        assert_eq!(in_comment("polymeter is nice"), None);
    }
}
