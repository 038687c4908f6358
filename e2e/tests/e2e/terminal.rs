//! Commands in a terminal: keys are pressed, and what it shows is read.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use polymeter_e2e::{skip, wait_until};
use rustix::process::Pid;

/// The command in a terminal that `script` of util-linux creates.
pub(crate) struct Terminal {
    script: Child,
    shown: Receiver<Vec<u8>>,
    all: Vec<u8>,
}

impl Terminal {
    /// Skips the running test if there is no `script`.
    pub(crate) fn run(command: &Command) -> Self {
        if Command::new("script").arg("--version").output().is_err() {
            skip("script", "there is no `script` of util-linux");
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        // The shell reports the status: that of `script` was once 0 for a command that a signal had ended.
        let start = "stty cols 80 rows 24; sh -c 'echo pid:$$: && exec \"$@\"' sh";
        let line = format!("{start} {}; echo status:$?:", words.join(" "));
        let mut script = Command::new("script")
            .args(["-q", "-c", &line, "/dev/null"])
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = script.stdout.take().unwrap();
        let (sender, shown) = sync_channel(64);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { script, shown, all: Vec::new() }
    }

    fn shown(&mut self) -> String {
        self.all.extend(self.shown.try_iter().flatten());
        String::from_utf8_lossy(&self.all).into_owned()
    }

    pub(crate) fn wait_for(&mut self, what: &str, shows: impl Fn(&str) -> bool) {
        let mut last = String::new();
        wait_until(&format!("the terminal shows {what}"), || {
            last = self.shown();
            shows(&last)
        });
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Presses a key, again if an earlier press came before the answer was shown, until it has had its
    /// effect.
    pub(crate) fn press_until(&mut self, key: &str, done: impl Fn() -> bool) {
        let mut polls = 0;
        wait_until(&format!("{key} has its effect"), || {
            if polls % 100 == 0 {
                self.press(key);
            }
            polls += 1;
            done()
        });
    }

    pub(crate) fn pid(&mut self) -> Pid {
        Pid::from_raw(number(&self.shown(), "pid:").unwrap()).unwrap()
    }

    /// Waits for the end and returns the exit status. The terminal must have been restored.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.script.wait().unwrap();
        while let Ok(more) = self.shown.recv() {
            self.all.extend(more);
        }
        let all = String::from_utf8_lossy(&self.all).into_owned();
        let (entered, left) = (all.rfind("\u{1b}[?1049h"), all.rfind("\u{1b}[?1049l"));
        assert!(entered.is_some() && left > entered, "the screen is given back: {all:?}");
        assert!(all.rfind("\u{1b}[?25h") > all.rfind("\u{1b}[?25l"), "the cursor is given back: {all:?}");
        number(&all, "status:")
    }
}

/// Returns the number between `before` and the next colon.
fn number(shown: &str, before: &str) -> Option<i32> {
    shown.split(before).nth(1)?.split(':').next()?.parse().ok()
}

/// Words of an output without its escape sequences.
pub(crate) fn words(shown: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = shown.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            rest.by_ref().skip(1).find(char::is_ascii_alphabetic);
            text.push(' ');
        } else {
            text.push(c);
        }
    }
    text.split_whitespace().map(str::to_owned).collect()
}
