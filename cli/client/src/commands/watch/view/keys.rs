//! Meaning of keys. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    Help,
    Filter,
    ClearFilter,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    ShorterPeriod,
    LongerPeriod,
    Reset,
}

const KEYS: [(KeyCode, KeyAction); 19] = [
    (KeyCode::Char('q'), KeyAction::Quit),
    (KeyCode::Char('?'), KeyAction::Help),
    (KeyCode::Char('h'), KeyAction::Help),
    (KeyCode::Char('/'), KeyAction::Filter),
    (KeyCode::Esc, KeyAction::ClearFilter),
    (KeyCode::Up, KeyAction::Up),
    (KeyCode::Char('k'), KeyAction::Up),
    (KeyCode::Down, KeyAction::Down),
    (KeyCode::Char('j'), KeyAction::Down),
    (KeyCode::PageUp, KeyAction::PageUp),
    (KeyCode::PageDown, KeyAction::PageDown),
    (KeyCode::Home, KeyAction::First),
    (KeyCode::End, KeyAction::Last),
    (KeyCode::Char('+'), KeyAction::ShorterPeriod),
    // On many keyboards this is the same key without shift.
    (KeyCode::Char('='), KeyAction::ShorterPeriod),
    (KeyCode::Char('-'), KeyAction::LongerPeriod),
    (KeyCode::Char('_'), KeyAction::LongerPeriod),
    (KeyCode::Char('r'), KeyAction::Reset),
    (KeyCode::Char('Q'), KeyAction::Quit),
];

impl KeyAction {
    pub(super) fn of(code: KeyCode) -> Option<Self> {
        KEYS.iter().find(|(of, _)| *of == code).map(|(_, action)| *action)
    }
}

pub(super) fn with_control(key: KeyEvent) -> Option<KeyCode> {
    key.modifiers.contains(KeyModifiers::CONTROL).then_some(key.code)
}
