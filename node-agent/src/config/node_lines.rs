//! Files with the nodes behind the ports and outlets of devices, which a command of the site writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use polymeter_proto::series::{Identifier, InvalidIdentifier};

use super::value_parsers::{InvalidValue, absolute};

/// Bytes of a file: 100,000 ports.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum NodeLinesError {
    #[error(transparent)]
    Path(#[from] InvalidValue),
    #[error("cannot read {path}: {source}; write lines `DEVICE PORT NODE` into it")]
    Read { path: String, source: std::io::Error },
    #[error("cannot read {path}: it has more than {FILE_BYTES_MAX} bytes; write a file for each device")]
    TooLong { path: String },
    #[error("{path}:{line}: expected `DEVICE PORT NODE`, found `{text}`")]
    Line { path: String, line: usize, text: String },
    #[error("{path}:{line}: {source}")]
    Node { path: String, line: usize, source: InvalidIdentifier },
}

/// Returns the nodes behind the ports of a device, from the file at `path`.
pub(super) fn nodes_in(path: &str, device: &str) -> Result<BTreeMap<String, Identifier>, NodeLinesError> {
    let file = absolute(path)?;
    let path = path.to_owned();
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Err(source) => Err(NodeLinesError::Read { path, source }),
        Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => Err(NodeLinesError::TooLong { path }),
        Ok(_) => nodes_of(&text, &path, device),
    }
}

/// Takes the lines of one device. Empty lines, and those that begin with `#`, are comments.
fn nodes_of(text: &str, path: &str, device: &str) -> Result<BTreeMap<String, Identifier>, NodeLinesError> {
    let mut nodes = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (name, port, node, rest) = (words.next(), words.next(), words.next(), words.next());
        match (name, port, node, rest) {
            (None, ..) => {}
            (Some(name), Some(port), Some(node), None) => {
                let node = Identifier::try_from(node);
                let node = node.map_err(|source| NodeLinesError::Node {
                    path: path.to_owned(),
                    line: number,
                    source,
                })?;
                if name == device {
                    nodes.insert(port.to_owned(), node);
                }
            }
            _ => {
                let text = line.chars().take(80).collect();
                return Err(NodeLinesError::Line { path: path.to_owned(), line: number, text });
            }
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, device: &str) -> Result<Vec<String>, String> {
        let nodes = nodes_of(text, "ports", device).map_err(|error| error.to_string())?;
        Ok(nodes.iter().map(|(port, node)| format!("{port}={node}")).collect())
    }

    #[test]
    fn lines_of_other_devices_and_comments_are_left_out() {
        let text = "# rack 1\nsw2 1 node17\n\nsw2\tEthernet2  node18\npdu3 1 node17\n";
        assert_eq!(parsed(text, "sw2").unwrap(), ["1=node17", "Ethernet2=node18"]);
        assert_eq!(parsed(text, "pdu3").unwrap(), ["1=node17"]);
        assert_eq!(parsed(text, "pdu4").unwrap(), [""; 0]);
        assert_eq!(parsed("", "sw2").unwrap(), [""; 0]);
    }

    #[test]
    fn other_lines_are_faults() {
        assert_eq!(
            parsed("sw2 1\n", "pdu3"),
            Err("ports:1: expected `DEVICE PORT NODE`, found `sw2 1`".to_owned())
        );
        assert!(parsed("a 1 n1\nsw2 1 node17 x\n", "sw2").unwrap_err().starts_with("ports:2: expected"));
        let long = format!("sw2 1 {}\n", "n".repeat(10_000));
        assert!(parsed(&long, "sw2").unwrap_err().starts_with("ports:1: "), "no name of a node");
        let missing = nodes_in("/nonexistent/ports", "sw2").unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nonexistent/ports: No such file"), "{missing}");
        assert!(nodes_in("ports", "sw2").is_err(), "not an absolute path");
    }
}
