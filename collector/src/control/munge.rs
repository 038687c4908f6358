//! Authenticates a user of another machine by munged.
//!
//! The `unmunge` command is used instead of libmunge: no foreign code runs in this process, and a user's
//! request can wait the few milliseconds of a process. The command gets the credential on its standard input,
//! runs without a shell and without an environment, is killed after a timeout, and its output is read up to
//! the length of a request.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use polymeter_proto::control::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tracing::warn;

use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmunge {
    pub program: PathBuf,
    /// Socket of munged; none for the default.
    pub socket: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) uid: u32,
    pub(super) payload: Vec<u8>,
}

/// Longest output of `unmunge` before the payload.
const HEAD_BYTES: u64 = 1024;

/// Longest error message of `unmunge`.
const ERROR_BYTES: u64 = 1024;

impl Unmunge {
    /// Refuses a credential unless munged accepts it as genuine, not expired, and not replayed.
    pub(super) async fn decode(&self, credential: &[u8]) -> Result<Credential, Refusal> {
        let mut command = Command::new(&self.program);
        command.args(["--numeric", "--keys=STATUS,UID"]).env_clear().kill_on_drop(true);
        if let Some(socket) = &self.socket {
            command.arg("--socket").arg(socket);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| self.cannot_run(&error))?;
        match timeout(limits::UNMUNGE_TIMEOUT, run(child, credential)).await {
            Err(_) => Err(self.cannot_run(&io::ErrorKind::TimedOut.into())),
            Ok(Err(error)) => Err(self.cannot_run(&error)),
            Ok(Ok(output)) => interpret(output),
        }
    }

    fn cannot_run(&self, error: &io::Error) -> Refusal {
        warn!(%error, path = %self.program.display(), "cannot run unmunge");
        Refusal::new("munge", None, "the collector cannot check credentials; contact the administrator")
    }
}

#[derive(Debug)]
struct Output {
    status: Option<i32>,
    output: Vec<u8>,
    error: Vec<u8>,
}

async fn run(mut child: Child, credential: &[u8]) -> io::Result<Output> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let write = async {
        // If the command ended early, its status tells the result.
        stdin.write_all(credential).await.ok();
        drop(stdin);
    };
    let (mut output, mut error) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) =
        (stdout.take(limits::REQUEST_BYTES + HEAD_BYTES), stderr.take(ERROR_BYTES));
    let (_, output_read, error_read) =
        tokio::join!(write, stdout.read_to_end(&mut output), stderr.read_to_end(&mut error));
    output_read.and(error_read)?;
    // An output longer than a request is not read to its end, and the command is not waited for.
    drop((stdout, stderr));
    let status = child.wait().await?.code();
    Ok(Output { status, output, error })
}

/// The exit status of `unmunge` is the number of munge's error.
fn interpret(output: Output) -> Result<Credential, Refusal> {
    let refuse = |code, message: &str| Err(Refusal::new(code, None, message));
    match output.status {
        Some(0) => parse(&output.output)
            .map_or_else(|| refuse("munge", "cannot parse the output of unmunge; check its version"), Ok),
        Some(15) => refuse(
            "expired",
            "expired credential: it was created too long ago; check the clocks of both machines",
        ),
        Some(16) => refuse("rewound", "credential dated in the future; check the clocks of both machines"),
        Some(17) => refuse("replayed", "replayed credential: it has already been used"),
        _ => {
            let message = String::from_utf8_lossy(&output.error);
            let message = message.trim();
            refuse("credential", &format!("invalid credential: munge reports {message}"))
        }
    }
}

/// Parses the output of `unmunge` for a valid credential: lines of keys and values, an empty line, and the
/// payload. The payload comes last, so that it cannot contain keys.
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

/// User and signed text in an output of `unmunge`; used by the fuzzer.
pub fn signed(output: &[u8]) -> Option<(u32, Vec<u8>)> {
    parse(output).map(|Credential { uid, payload }| (uid, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_cannot_change_the_user() {
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

    fn refused(status: Option<i32>) -> Refusal {
        let output =
            Output { status, output: b"STATUS: 0\nUID: 0\n\n".to_vec(), error: b"no \x1b[m".to_vec() };
        interpret(output).unwrap_err()
    }

    #[test]
    fn an_exit_status_is_a_reason() {
        for (status, code) in [(15, "expired"), (16, "rewound"), (17, "replayed"), (6, "credential")] {
            assert_eq!(refused(Some(status)).code, code);
        }
        assert_eq!(refused(None).message.as_str(), "invalid credential: munge reports no ?[m");
    }
}
