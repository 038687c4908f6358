//! Who sent a request from another machine, as munged says.
//!
//! The `unmunge` command is used and not libmunge: it needs no foreign code in this process, and a request of a person
//! can wait the few milliseconds of a process. It gets the credential on its standard input, runs without a shell and
//! without an environment, is ended when it takes too long, and is read no further than a request can be long.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::answer::Refusal;
use polymeter_service::printable::printable;
use tracing::warn;

use crate::limits;

/// How credentials are decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmunge {
    /// The `unmunge` command.
    pub program: PathBuf,
    /// The socket of munged; none for where it usually is.
    pub socket: Option<PathBuf>,
}

/// What a valid credential says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credential {
    /// Who made it.
    pub(super) uid: u32,
    /// What was signed.
    pub(super) payload: Vec<u8>,
}

/// Bytes that `unmunge` writes in front of the payload.
const HEAD_BYTES: u64 = 1024;

/// Bytes of a complaint of `unmunge`.
const COMPLAINT_BYTES: u64 = 1024;

impl Unmunge {
    /// What a credential says, if munged finds that it is genuine, fresh, and seen for the first time.
    pub(super) async fn decode(&self, credential: &[u8]) -> Result<Credential, Refusal> {
        let mut command = Command::new(&self.program);
        command.args(["--numeric", "--keys=STATUS,UID"]).env_clear().kill_on_drop(true);
        if let Some(socket) = &self.socket {
            command.arg("--socket").arg(socket);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let away = |error: io::Error| {
            warn!(%error, path = %self.program.display(), remedy = "set `unmunge_path`", "cannot run unmunge");
            Refusal::new("munge", None, "the collector cannot check credentials now; tell its administrator")
        };
        let child = command.spawn().map_err(away)?;
        match timeout(limits::UNMUNGE_WITHIN, run(child, credential)).await {
            Err(_) => Err(away(io::ErrorKind::TimedOut.into())),
            Ok(Err(error)) => Err(away(error)),
            Ok(Ok(said)) => interpret(said),
        }
    }
}

/// What the command wrote, and its exit status.
#[derive(Debug)]
struct Said {
    status: Option<i32>,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

async fn run(mut child: Child, credential: &[u8]) -> io::Result<Said> {
    let (input, output, complaint) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(complaint)) = (input, output, complaint) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let give = async {
        // One that has seen enough, and ended, is judged by its status.
        input.write_all(credential).await.ok();
        drop(input);
    };
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let (mut output, mut complaint) =
        (output.take(limits::REQUEST_BYTES + HEAD_BYTES), complaint.take(COMPLAINT_BYTES));
    let (_, read, heard) =
        tokio::join!(give, output.read_to_end(&mut said), complaint.read_to_end(&mut complained));
    read.and(heard)?;
    // What is longer than a request is not read to its end, and the command is not waited for.
    drop((output, complaint));
    let status = child.wait().await?.code();
    Ok(Said { status, output: said, complaint: complained })
}

/// The exit status of `unmunge` is the number of munge's error.
fn interpret(said: Said) -> Result<Credential, Refusal> {
    let refuse = |code, message: &str| Err(Refusal::new(code, None, message));
    match said.status {
        Some(0) => parse(&said.output).map_or_else(
            || refuse("munge", "unmunge says what cannot be read; is it of another version?"),
            Ok,
        ),
        Some(15) => refuse("expired", "Expired credential: was it made long ago, or do the clocks differ?"),
        Some(16) => refuse("rewound", "Rewound credential: it is from the future; do the clocks differ?"),
        Some(17) => refuse("replayed", "Replayed credential: it was used before"),
        _ => {
            let complaint = String::from_utf8_lossy(&said.complaint);
            let complaint = printable(complaint.trim(), 200);
            refuse("credential", &format!("munge does not accept the credential: {complaint}"))
        }
    }
}

/// What `unmunge` writes for a valid credential: lines of keys and values, an empty line, and the payload. The payload
/// comes last, so that nothing in it can be taken for munge's word.
fn parse(output: &[u8]) -> Option<Credential> {
    let end = output.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, rest) = output.split_at_checked(end)?;
    let payload = rest.strip_prefix(b"\n\n")?.to_vec();
    let (mut status, mut uid) = (None, None);
    for line in std::str::from_utf8(head).ok()?.lines() {
        let (key, value) = line.split_once(':')?;
        match key {
            "STATUS" => status = value.trim().parse::<u32>().ok(),
            "UID" => uid = value.trim().parse::<u32>().ok(),
            _ => return None,
        }
    }
    (status? == 0).then_some(Credential { uid: uid?, payload })
}

/// For the fuzzer: who signed what, as `unmunge` says in this output.
#[cfg(fuzzing)]
pub fn signed(output: &[u8]) -> Option<(u32, Vec<u8>)> {
    parse(output).map(|Credential { uid, payload }| (uid, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_cannot_say_who_made_it() {
        let output = b"STATUS:          0\nUID:             1000\n\nUID: 0\n\nSTATUS: 0\n";
        let payload = b"UID: 0\n\nSTATUS: 0\n".to_vec();
        assert_eq!(parse(output), Some(Credential { uid: 1000, payload }));
        assert_eq!(
            parse(b"STATUS: 0\nUID: 7\n\n"),
            Some(Credential { uid: 7, payload: Vec::new() }),
            "an empty payload"
        );
        for strange in [
            &b""[..],
            b"\n\nUID: 0",
            b"STATUS: 0\n\nUID: 0\n\n",
            b"UID: 0\n\n",
            b"STATUS: 17\nUID: 0\n\nx",
            b"STATUS: 0\nUID: root (0)\n\nx",
            b"STATUS: 0\nUID: 4294967296\n\nx",
            b"STATUS: 0\nGID: 0\nUID: 0\n\nx",
        ] {
            assert_eq!(parse(strange), None, "{}", String::from_utf8_lossy(strange));
        }
    }

    #[test]
    fn an_exit_status_is_a_reason() {
        let refused = |status| {
            let said =
                Said { status, output: b"STATUS: 0\nUID: 0\n\n".to_vec(), complaint: b"no \x1b[m".to_vec() };
            interpret(said).unwrap_err()
        };
        for (status, code) in [(15, "expired"), (16, "rewound"), (17, "replayed"), (6, "credential")] {
            assert_eq!(refused(Some(status)).code, code);
        }
        assert_eq!(refused(None).message, "munge does not accept the credential: no ?[m");
    }
}
