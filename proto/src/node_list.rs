//! Nodes of a job as the scheduler writes them: `n[1-4,7],login1`. Pure.

/// Longest list that is read; a longer one counts as unknown.
const NODES_MAX: usize = 100_000;

/// Returns the nodes on which a job was tracked and those of the scheduler's list on which it was not,
/// sorted. Ignores the list if it cannot be read, or if the scheduler and the agents use different names.
pub fn with_silent(tracked: &[String], list: Option<&str>) -> Vec<String> {
    let mut nodes = tracked.to_vec();
    let listed = list.and_then(expanded).unwrap_or_default();
    // An agent may use the name with its domain, and the scheduler without it.
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let known: std::collections::BTreeSet<String> = tracked.iter().map(|name| short(name)).collect();
    let (present, silent): (Vec<String>, Vec<String>) =
        listed.into_iter().partition(|name| known.contains(&short(name)));
    if present.len() == known.len() {
        nodes.extend(silent);
        nodes.sort_unstable();
    }
    nodes
}

/// Returns the names of a list; none if it is malformed or too long.
pub fn expanded(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in parts(list)? {
        names.extend(expanded_part(part, NODES_MAX.checked_sub(names.len())?)?);
    }
    Some(names)
}

/// Divides a list at the commas outside brackets.
fn parts(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, character) in list.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(list.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(begin..)?);
    (depth == 0 && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// Returns the names of `PREFIX[RANGES]REST`, whose rest may have brackets too.
fn expanded_part(part: &str, most: usize) -> Option<Vec<String>> {
    let Some((prefix, rest)) = part.split_once('[') else { return (most > 0).then(|| vec![part.to_owned()]) };
    let (ranges, rest) = rest.split_once(']')?;
    let rests = expanded_part(rest, most)?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let numbers = first.parse::<u64>().ok()?..=last.parse().ok()?;
        for number in numbers {
            if names.len() + rests.len() > most {
                return None;
            }
            names.extend(
                rests.iter().map(|rest| format!("{prefix}{number:0width$}{rest}", width = first.len())),
            );
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str) -> String {
        expanded(list).map_or_else(|| "unknown".to_owned(), |names| names.join(" "))
    }

    #[test]
    fn lists_are_expanded() {
        for (list, names) in [
            ("n1", "n1"),
            ("a,b", "a b"),
            ("n[1-3,7],login1", "n1 n2 n3 n7 login1"),
            ("n[08-10]", "n08 n09 n10"),
            ("r[1-2]n[3-4]-ib", "r1n3-ib r1n4-ib r2n3-ib r2n4-ib"),
            ("n[1-3", "unknown"),
            ("n1]", "unknown"),
            ("n[1-x]", "unknown"),
            ("", "unknown"),
            ("a,,b", "unknown"),
            ("n[1-99999999]", "unknown"),
            ("a[1-1000]b[1-1000]", "unknown"),
        ] {
            assert_eq!(of(list), names, "{list}");
        }
        assert_eq!(expanded("n[1-100000]").unwrap().len(), NODES_MAX);
        assert_eq!(expanded("n[1-100000],m"), None);
    }

    fn with(tracked: &[&str], list: &str) -> String {
        let tracked: Vec<String> = tracked.iter().map(|name| (*name).to_owned()).collect();
        with_silent(&tracked, Some(list)).join(" ")
    }

    #[test]
    fn silent_nodes_are_those_of_the_list_without_an_agent() {
        assert_eq!(with(&["n2"], "n[1-3]"), "n1 n2 n3");
        assert_eq!(with(&["n1.cluster"], "n[1-2]"), "n1.cluster n2");
        // Names of different kinds, and a malformed list.
        assert_eq!(with(&["host7"], "n[1-2]"), "host7");
        assert_eq!(with(&["n1"], "n[1-"), "n1");
        assert_eq!(with_silent(&["n1".to_owned()], None), ["n1"]);
    }
}
