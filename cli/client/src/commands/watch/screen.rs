//! Terminal of the live view, which is always restored.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event};
use crossterm::style::PrintStyledContent;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use polymeter_proto::control::{Answer, Request};
use polymeter_service::clock;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::source::{RequestTarget, WatchSource};
use super::view::{ScreenLine, View, ViewAction};
use crate::failure::Failure;
use crate::local::WatchLine;
use crate::output::layout::width;
use crate::output::locale::replaced;

/// Keys take effect immediately.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

const KEYS_MAX: usize = 64;

/// Shows the view until the user or a signal ends it, and returns the exit status.
pub(super) async fn show(
    mut view: View,
    first: WatchLine,
    mut stream: WatchSource,
    target: RequestTarget,
) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::because("cannot use the terminal", &error);
    let mut signals = ScreenSignals::catch().map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    let mut events = events();
    let mut pending: Option<JoinHandle<Result<Answer, Failure>>> = None;
    let mut redraws = tokio::time::interval(REDRAW_INTERVAL);
    redraws.set_missed_tick_behavior(MissedTickBehavior::Delay);
    view.handle_answer(first.answer);
    loop {
        let action = tokio::select! {
            line = stream.next(), if !view.has_ended() => {
                let answer = line?.answer;
                if let Answer::Refused(refusal) = answer {
                    return Err(Failure::Refused(Box::new(refusal)));
                }
                view.handle_answer(answer);
                continue;
            }
            event = events.recv() => match event {
                Some(Event::Key(key)) => view.handle_key(key),
                Some(_) => ViewAction::None,
                None => return Err(Failure::Failed(
                    "cannot use the terminal: it was closed".to_owned(),
                )),
            },
            answer = answer_to(&mut pending) => view.handle_reply(answer),
            signal = signals.next() => match signal {
                SignalAction::Exit(status) => return Ok(ExitCode::from(status)),
                SignalAction::Suspend => ViewAction::Suspend,
            },
            _ = redraws.tick() => ViewAction::None,
        };
        match action {
            ViewAction::None => {}
            ViewAction::Quit => return Ok(ExitCode::SUCCESS),
            ViewAction::Suspend => screen.suspend().map_err(failed)?,
            ViewAction::Ask(request) => pending = Some(send(target.clone(), *request)),
        }
        view.tick(clock::realtime_us());
        screen.draw(&view).map_err(failed)?;
    }
}

fn send(target: RequestTarget, request: Request) -> JoinHandle<Result<Answer, Failure>> {
    tokio::task::spawn_blocking(move || target.ask(&request))
}

/// Waits for the answer to the pending request; forever if there is none.
async fn answer_to(pending: &mut Option<JoinHandle<Result<Answer, Failure>>>) -> Result<Answer, Failure> {
    let Some(request) = pending else { return std::future::pending().await };
    let answer = request.await;
    *pending = None;
    answer.map_err(|error| Failure::Failed(error.to_string()))?
}

/// Reads the terminal's events on a thread that ends with the process or with the terminal.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Terminal in the mode of the view. It is restored on drop and on a panic.
#[derive(Debug, Default)]
struct Screen {
    /// Columns and lines when it was drawn last.
    size: (u16, u16),
    shown: Vec<ScreenLine>,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore().ok();
            previous(panic);
        }));
        take()?;
        Ok(Self::default())
    }

    /// Writes only the lines that differ from those that are shown.
    fn draw(&mut self, view: &View) -> io::Result<()> {
        let size = terminal::size()?;
        let (columns, height) = size;
        let lines = view.lines(columns.into(), height.into());
        let mut out = Vec::new();
        queue!(out, BeginSynchronizedUpdate)?;
        if size != self.size {
            self.shown.clear();
            queue!(out, Clear(ClearType::All))?;
        }
        for (row, line) in (0..height).zip(&lines) {
            if self.shown.get(usize::from(row)) != Some(line) {
                let shown = line.style().apply(replaced(line.content(), true));
                queue!(out, MoveTo(0, row), PrintStyledContent(shown))?;
                // After a full line the cursor is on its last character, which would be removed.
                if width(line.content()) < columns.into() {
                    queue!(out, Clear(ClearType::UntilNewLine))?;
                }
            }
        }
        queue!(out, EndSynchronizedUpdate)?;
        (self.size, self.shown) = (size, lines);
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()
    }

    /// Restores the terminal, stops the process as Ctrl-Z does, and takes the terminal again when continued.
    fn suspend(&mut self) -> io::Result<()> {
        restore()?;
        kill_process(getpid(), Signal::STOP)?;
        take()?;
        *self = Self::default();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore().ok();
    }
}

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide)
}

fn restore() -> io::Result<()> {
    terminal::disable_raw_mode()?;
    execute!(io::stdout(), LeaveAlternateScreen, EnableLineWrap, Show)
}

enum SignalAction {
    Exit(u8),
    Suspend,
}

/// Signals that take effect once the terminal is restored.
struct ScreenSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    stop: tokio::signal::unix::Signal,
}

impl ScreenSignals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
        })
    }

    async fn next(&mut self) -> SignalAction {
        // The exit status that a shell reports for a process that a signal ended.
        let status =
            |signal: Signal| SignalAction::Exit(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX));
        tokio::select! {
            _ = self.interrupt.recv() => status(Signal::INT),
            _ = self.terminate.recv() => status(Signal::TERM),
            _ = self.hangup.recv() => status(Signal::HUP),
            _ = self.stop.recv() => SignalAction::Suspend,
        }
    }
}
