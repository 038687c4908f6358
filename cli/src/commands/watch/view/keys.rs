//! What keys stand for.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key is pressed for while rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Press {
    Quit,
    Help,
    Filter,
    NoFilter,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Faster,
    Slower,
    Reset,
}

const PRESSES: [(KeyCode, Press); 19] = [
    (KeyCode::Char('q'), Press::Quit),
    (KeyCode::Char('?'), Press::Help),
    (KeyCode::Char('h'), Press::Help),
    (KeyCode::Char('/'), Press::Filter),
    (KeyCode::Esc, Press::NoFilter),
    (KeyCode::Up, Press::Up),
    (KeyCode::Char('k'), Press::Up),
    (KeyCode::Down, Press::Down),
    (KeyCode::Char('j'), Press::Down),
    (KeyCode::PageUp, Press::PageUp),
    (KeyCode::PageDown, Press::PageDown),
    (KeyCode::Home, Press::First),
    (KeyCode::End, Press::Last),
    (KeyCode::Char('+'), Press::Faster),
    // The same key without shift, on many keyboards.
    (KeyCode::Char('='), Press::Faster),
    (KeyCode::Char('-'), Press::Slower),
    (KeyCode::Char('_'), Press::Slower),
    (KeyCode::Char('r'), Press::Reset),
    (KeyCode::Char('Q'), Press::Quit),
];

impl Press {
    /// What a key stands for, if for anything.
    pub(super) fn of(code: KeyCode) -> Option<Self> {
        PRESSES.iter().find(|(of, _)| *of == code).map(|(_, press)| *press)
    }
}

/// Whether a key goes down; where the terminal tells, it also comes up.
pub(super) fn goes_down(key: KeyEvent) -> bool {
    key.kind != KeyEventKind::Release
}

/// The letter that is pressed together with Ctrl.
pub(super) fn with_control(key: KeyEvent) -> Option<KeyCode> {
    key.modifiers.contains(KeyModifiers::CONTROL).then_some(key.code)
}
