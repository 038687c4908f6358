//! Other tools to compare with Polymeter, described by the commands that start and stop them.

use std::error::Error;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use crate::job::pause;
use crate::process;

/// Limit for a tool to exit after SIGTERM.
const END_S: u64 = 5;

/// Status of a tool that has lost a part.
const INCOMPLETE: i32 = 3;

/// A tool, described by shell commands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name of the tool in the results.
    pub name: String,
    /// The command that starts the tool. It may leave a daemon, which `stop` stops. Without `stop` it keeps
    /// running, and is stopped with SIGTERM to its process group; it then exits with 3 if a part of it had
    /// ended before.
    pub start: String,
    /// The command that stops the daemon that `start` has left.
    #[serde(default)]
    pub stop: Option<String>,
    /// A program that the tool requires; if it is missing, the tool is left out.
    #[serde(default)]
    pub needs: Option<String>,
    /// A command that fails where the tool cannot work, although it is installed.
    #[serde(default)]
    pub works: Option<String>,
}

/// Dropping it stops the tool.
#[derive(Debug)]
pub struct RunningTool<'a> {
    tool: &'a Tool,
    process: Child,
    environment: Vec<(&'static str, String)>,
    is_stopped: bool,
}

impl Tool {
    /// True if it is installed and can work on this machine.
    pub fn is_here(&self) -> bool {
        self.needs.as_deref().is_none_or(is_program_here) && self.fault().is_none()
    }

    /// Runs the command that tests the machine. Returns the last line that it printed to stderr, or how it
    /// ended, if it fails.
    pub fn fault(&self) -> Option<String> {
        let test = shell(self.works.as_ref()?, &[]).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let test = match test {
            Ok(test) if test.status.success() => return None,
            Ok(test) => test,
            Err(error) => return Some(error.to_string()),
        };
        let errors = String::from_utf8_lossy(&test.stderr);
        let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
        Some(last.map_or_else(|| format!("its test ended with {}", test.status), str::to_owned))
    }

    /// Runs `start` to its end with additional environment variables, and returns what it printed. Fails if
    /// the command fails.
    pub fn print(&self, environment: &[(&'static str, String)]) -> Result<String, Box<dyn Error>> {
        let output =
            shell(&self.start, environment).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the command of {} failed: {}", self.name, errors.trim()).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The same tool, with variables set before `start`.
    pub fn with<'a>(&self, set: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let set = set.into_iter().map(|(name, value)| format!("export {name}='{value}'\n"));
        Self { start: set.collect::<String>() + &self.start, ..self.clone() }
    }

    /// Runs `start` with additional environment variables. Fails if the shell fails at once.
    pub fn start(&self, environment: Vec<(&'static str, String)>) -> Result<RunningTool<'_>, Box<dyn Error>> {
        let mut process = shell(&self.start, &environment).spawn()?;
        // A shell that does not find the program exits at once, as does one that has started a daemon.
        pause(200_000_000);
        if process.try_wait()?.is_some_and(|status| !status.success()) {
            return Err(format!("the tool {} does not start: `{}` failed", self.name, self.start).into());
        }
        Ok(RunningTool { tool: self, process, environment, is_stopped: false })
    }
}

impl RunningTool<'_> {
    /// CPU time of the started processes, as [`process::group_cpu_s`] counts it; daemons that have left the
    /// process group are not included.
    pub fn cpu_s(&self) -> io::Result<f64> {
        process::group_cpu_s(self.process.id())
    }

    /// Stops the tool after a measurement. Fails if it or a part of it has ended before, since something else
    /// was measured then.
    pub fn stop(mut self) -> Result<(), Box<dyn Error>> {
        let ended = self.process.try_wait()?.filter(|_| self.tool.stop.is_none());
        self.end();
        let lacks_part = self.process.try_wait()?.is_some_and(|status| status.code() == Some(INCOMPLETE));
        let (what, status) = match ended {
            Some(status) => ("", status.to_string()),
            None if lacks_part => ("a part of ", "which its command reports".to_owned()),
            None => return Ok(()),
        };
        let name = &self.tool.name;
        Err(format!(
            "{what}the tool {name} ended while it was measured, {status}; run its command by hand to see why"
        )
        .into())
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if let Some(stop) = &self.tool.stop {
            // The command's own messages appear on stderr.
            shell(stop, &self.environment).status().ok();
        }
        let group = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let kill_all = |signal| group.is_some_and(|group| kill_process_group(group, signal).is_ok());
        if kill_all(Signal::TERM) {
            crate::clock::wait_for("the tool ends", END_S, || self.process.try_wait().ok().flatten()).ok();
            // Child processes that it has not waited for.
            kill_all(Signal::KILL);
        }
        self.process.wait().ok();
    }
}

impl Drop for RunningTool<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// True if a program of this name is in a directory of `PATH`.
pub fn is_program_here(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

fn shell(script: &str, environment: &[(&'static str, String)]) -> Command {
    let mut command = Command::new("sh");
    let variables = environment.iter().map(|(name, value)| (*name, value.as_str()));
    command.args(["-c", script]).envs(variables).process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(start: &str, stop: Option<&str>) -> Tool {
        let text = |text: &str| text.to_owned();
        Tool { name: text("test"), start: text(start), stop: stop.map(text), needs: None, works: None }
    }

    #[test]
    fn it_sees_its_variables_and_is_stopped_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let (pid, stopped) = (directory.path().join("pid"), directory.path().join("stopped"));
        let start = "sleep 100 & echo $! > $PID_FILE; wait";
        let environment =
            vec![("PID_FILE", pid.display().to_string()), ("STOP_FILE", stopped.display().to_string())];
        let tool = tool(start, Some("echo $PID_FILE > $STOP_FILE"));
        drop(tool.start(environment).unwrap());
        let child = std::fs::read_to_string(&pid).unwrap();
        let program = std::path::Path::new("/proc").join(child.trim()).join("exe");
        crate::clock::wait_for("the child is gone", 10, || (!program.exists()).then_some(())).unwrap();
        assert!(stopped.is_file());
    }

    #[test]
    fn a_tool_that_ends_early_is_not_measured() {
        let stopped = |start: &str, stop| {
            let tool = tool(start, stop);
            let mut running = tool.start(Vec::new()).unwrap();
            if start != "sleep 100" {
                crate::clock::wait_for("it ends", 10, || running.process.try_wait().unwrap()).unwrap();
            }
            running.stop().map_err(|error| error.to_string())
        };
        let error = stopped("sleep 1; exit 5", None).unwrap_err();
        assert!(error.contains("test ended while it was measured, exit status: 5"), "{error}");
        assert!(stopped("true", None).is_err(), "success is an end, too");
        assert!(stopped("true", Some("true")).is_ok(), "it has left a daemon");
        assert!(stopped("sleep 100", None).is_ok());
    }

    #[test]
    fn a_tool_that_loses_a_part_is_not_measured() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = |part: &str| {
            let ready = directory.path().join(part);
            let start =
                "trap 'kill $part 2> /dev/null' EXIT; trap 'kill -0 $part 2> /dev/null || exit 3; exit' TERM
                setsid sleep $PART & part=$!; [ $PART = 100 ] || wait $part; : > $READY; sleep 100 & wait $!";
            let tool = tool(start, None);
            let environment = vec![("PART", part.to_owned()), ("READY", ready.display().to_string())];
            let running = tool.start(environment).unwrap();
            crate::clock::wait_for("it is ready", 10, || ready.exists().then_some(())).unwrap();
            running.stop().map_err(|error| error.to_string())
        };
        assert!(stopped("100").is_ok());
        let error = stopped("0").unwrap_err();
        assert!(error.starts_with("a part of the tool test ended"), "{error}");
    }

    #[test]
    fn a_command_prints_with_its_variables() {
        let set = [("A".to_owned(), "x y".to_owned())].into();
        let set: std::collections::BTreeMap<_, _> = set;
        let printing = tool("echo \"rate $A $B\"", None).with(&set);
        assert_eq!(printing.print(&[("B", "3".to_owned())]).unwrap(), "rate x y 3\n");
        let error = tool("echo wrong >&2; exit 3", None).print(&[]).unwrap_err().to_string();
        assert!(error.ends_with("failed: wrong"), "{error}");
    }

    #[test]
    fn a_tool_that_does_not_start_is_an_error_and_a_missing_program_is_detected() {
        assert!(tool("exit 3", None).start(Vec::new()).is_err());
        assert!(tool("true", None).start(Vec::new()).is_ok());
        let fault = |test: &str| Tool { works: Some(test.to_owned()), ..tool("", None) }.fault();
        assert_eq!(fault("echo noise >&2"), None);
        assert_eq!(fault("exit 3").as_deref(), Some("its test ended with exit status: 3"));
        let of_python = "printf 'Traceback:\\n  line 1\\nModuleNotFoundError: no pcp\\n\\n' >&2; exit 1";
        assert_eq!(fault(of_python).as_deref(), Some("ModuleNotFoundError: no pcp"));
        assert!(!Tool { needs: Some("no-such-program-anywhere".to_owned()), ..tool("", None) }.is_here());
        assert!(Tool { needs: Some("sh".to_owned()), ..tool("", None) }.is_here());
    }
}
