//! Request `regions` of the control language, as JSON.

use std::fmt::Write as _;

use crate::destination::Destination;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) entries: u64,
    pub(crate) time_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) thread_ns: u64,
    pub(crate) threads: u64,
}

/// Line of a request. `is_last` is true at the end of the process.
pub(crate) fn line(destination: &Destination, regions: &[(&[u8], Times)], is_last: bool) -> String {
    let mut line = String::from("{\"verb\":\"regions\",\"job\":");
    quote(&mut line, destination.job.as_bytes());
    // Writing to a string does not fail.
    write!(line, ",\"process\":{}", destination.process).ok();
    if let Some(rank) = destination.rank {
        write!(line, ",\"rank\":{rank}").ok();
    }
    write!(line, ",\"is_last\":{is_last},\"regions\":[").ok();
    for (number, (name, times)) in regions.iter().enumerate() {
        line.push_str(if number == 0 { "{\"name\":" } else { ",{\"name\":" });
        quote(&mut line, name);
        let Times { entries, time_ns, self_ns, thread_ns, threads } = times;
        write!(
            line,
            ",\"entries\":{entries},\"time_ns\":{time_ns},\"self_ns\":{self_ns},\"thread_ns\":{thread_ns},\"threads\":{threads}}}"
        )
        .ok();
    }
    line.push_str("]}\n");
    line
}

/// Returns a name as it is sent: bytes that are not UTF-8 and control characters become question marks.
pub(crate) fn printable(name: &[u8]) -> String {
    let mut printable = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let characters = chunk.valid().chars();
        printable.extend(characters.map(|character| if character.is_control() { '?' } else { character }));
        printable.extend(chunk.invalid().iter().map(|_| '?'));
    }
    printable
}

/// Appends a text in quotes, which at most doubles its length.
fn quote(line: &mut String, text: &[u8]) {
    line.push('"');
    for character in printable(text).chars() {
        if matches!(character, '"' | '\\') {
            line.push('\\');
        }
        line.push(character);
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{NAME_BYTES, REGIONS};

    fn destination() -> Destination {
        Destination { socket: "/x".into(), job: "42".to_owned(), process: 7, rank: Some(3) }
    }

    #[test]
    fn any_name_gives_valid_json() {
        let times = Times { entries: 1, time_ns: 2, self_ns: 3, thread_ns: 4, threads: 5 };
        let names: [&[u8]; 4] = [b"solver", b"a\"b\\c", b"\xff\xc3", b"x\ny\x00"];
        let line = line(&destination(), &names.map(|name| (name, times)), true);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|number| value["regions"][number]["name"].as_str().unwrap().to_owned()),
            ["solver", "a\"b\\c", "??", "x?y?"]
        );
        assert_eq!((&value["rank"], &value["is_last"]), (&3.into(), &true.into()));
        assert_eq!(value["regions"][0]["threads"], 5);
    }

    #[test]
    fn the_longest_request_fits_a_line_of_the_agent() {
        let name = [b'"'; NAME_BYTES];
        let most = Times {
            entries: u64::MAX,
            time_ns: u64::MAX,
            self_ns: u64::MAX,
            thread_ns: u64::MAX,
            threads: u64::MAX,
        };
        let regions = vec![(name.as_slice(), most); REGIONS + 2];
        let destination = Destination { job: "\\".repeat(256), ..destination() };
        assert!(line(&destination, &regions, true).len() < 64 * 1024);
    }
}
