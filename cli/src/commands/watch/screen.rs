//! The terminal of the live view: its keys, its size and its signals. Whatever happens, it is left as it was found.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use polymeter_agent::clock;
use polymeter_agent::control::{Answer, Verb};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::lines::{Line, Lines};
use super::view::{View, Wish};
use crate::control::ask;
use crate::failure::Failure;

/// How often the picture follows what the agent tells. Keys are answered at once.
const FRAME: Duration = Duration::from_millis(100);

/// Keys that may wait.
const KEYS: usize = 64;

/// Shows the view until it is ended, and says with which status.
pub(super) async fn show(
    mut view: View,
    first: Line,
    mut lines: Lines,
    socket: &Path,
) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::refused("cannot use the terminal", &error);
    let mut signals = Signals::take().map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    let mut events = events();
    let mut asked: Option<JoinHandle<Result<Answer, Failure>>> = None;
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    view.told(first.answer);
    loop {
        let wish = tokio::select! {
            line = lines.next(), if !view.has_ended() => {
                let answer = line?.answer;
                if let Answer::Refused(refusal) = answer {
                    return Err(Failure::Answered(Box::new(refusal)));
                }
                view.told(answer);
                continue;
            }
            event = events.recv() => match event {
                Some(Event::Key(key)) => view.pressed(key),
                Some(_) => Wish::Nothing,
                None => return Err(Failure::Refused("the terminal went away".to_owned())),
            },
            answer = answer_to(&mut asked) => view.answered(answer),
            signal = signals.next() => match signal {
                Told::End(status) => return Ok(ExitCode::from(status)),
                Told::Stop => Wish::Suspend,
            },
            _ = frames.tick() => Wish::Nothing,
        };
        match wish {
            Wish::Nothing => {}
            Wish::Quit => return Ok(ExitCode::SUCCESS),
            Wish::Suspend => screen.suspend().map_err(failed)?,
            Wish::Ask(verb) => asked = Some(asking(socket.to_owned(), *verb)),
        }
        view.tick(clock::realtime_us());
        screen.terminal.draw(|frame| view.draw(frame)).map_err(failed)?;
    }
}

/// Asks on a connection of its own, for the other one only shows.
fn asking(socket: PathBuf, verb: Verb) -> JoinHandle<Result<Answer, Failure>> {
    tokio::task::spawn_blocking(move || ask(&socket, &verb))
}

/// The answer to what was asked; never where nothing was.
async fn answer_to(asked: &mut Option<JoinHandle<Result<Answer, Failure>>>) -> Result<Answer, String> {
    let Some(asking) = asked else { return std::future::pending().await };
    let answer = asking.await;
    *asked = None;
    match answer {
        Ok(answer) => answer.map_err(|failure| failure.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// What the terminal tells, from a thread that ends with the process or with the terminal.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The terminal while the view has it. Dropping it, or a panic, leaves it as it was.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let before = std::panic::take_hook();
        // Which gives back the rest of the terminal.
        std::panic::set_hook(Box::new(move |panic| {
            execute!(io::stdout(), Show).ok();
            before(panic);
        }));
        Ok(Self { terminal })
    }

    /// Gives the terminal back, stops as Ctrl-Z does, and takes it again when told to go on.
    fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        kill_process(getpid(), Signal::STOP)?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        // A new one knows of nothing that was drawn. To clear the old one would ask the terminal a question, the answer
        // to which the thread of the keys would take.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What a signal wants.
enum Told {
    /// To end, with this status.
    End(u8),
    /// To stop, and to go on later.
    Stop,
}

/// The signals after which the terminal is to be given back first.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    stop: tokio::signal::unix::Signal,
}

impl Signals {
    fn take() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
        })
    }

    async fn next(&mut self) -> Told {
        // As a shell names the status of what a signal ended.
        let status = |signal: Signal| Told::End(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX));
        tokio::select! {
            _ = self.interrupt.recv() => status(Signal::INT),
            _ = self.terminate.recv() => status(Signal::TERM),
            _ = self.hangup.recv() => status(Signal::HUP),
            _ = self.stop.recv() => Told::Stop,
        }
    }
}
