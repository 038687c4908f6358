//! Effects of keys, and of the agent's replies to the requests that they cause.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};
use polymeter_proto::control::{
    Answer, LeaseAnswer, PlanLine, Refusal, Request, ResetAnswer, ResetRequest, SetRequest,
};
use polymeter_proto::period::Sampling;

use super::keys::{self, KeyAction};
use super::period_steps;
use super::state::{Mode, View, ViewAction, plan_key};
use crate::failure::Failure;
use crate::output::units;

pub(super) const LEASE: &str = "10min";

const PAGE: usize = 10;

impl View {
    pub(in crate::commands::watch) fn handle_key(&mut self, key: KeyEvent) -> ViewAction {
        // Some terminals report the release of a key, too.
        if key.kind == KeyEventKind::Release {
            return ViewAction::None;
        }
        if let Some(code) = keys::with_control(key) {
            let actions = [('c', ViewAction::Quit), ('d', ViewAction::Quit), ('z', ViewAction::Suspend)];
            let action = actions.into_iter().find(|(letter, _)| code == KeyCode::Char(*letter));
            return action.map_or(ViewAction::None, |(_, action)| action);
        }
        match self.mode {
            Mode::Filter => self.edit_filter(key.code),
            Mode::Help => self.mode = Mode::Rows,
            Mode::Rows => {
                self.message.clear();
                return KeyAction::of(key.code).map_or(ViewAction::None, |action| self.execute(action));
            }
        }
        ViewAction::None
    }

    fn edit_filter(&mut self, code: KeyCode) {
        if let KeyCode::Char(letter) = code {
            self.filter.push(letter);
        } else if code == KeyCode::Backspace {
            self.filter.pop();
        } else if code == KeyCode::Enter {
            self.mode = Mode::Rows;
        } else if code == KeyCode::Esc {
            self.filter.clear();
            self.mode = Mode::Rows;
        }
    }

    fn execute(&mut self, action: KeyAction) -> ViewAction {
        match action {
            KeyAction::Quit => return ViewAction::Quit,
            KeyAction::Help => self.mode = Mode::Help,
            KeyAction::Filter => self.mode = Mode::Filter,
            KeyAction::ClearFilter => self.filter.clear(),
            KeyAction::Up => self.select(|at| at.saturating_sub(1)),
            KeyAction::Down => self.select(|at| at + 1),
            KeyAction::PageUp => self.select(|at| at.saturating_sub(PAGE)),
            KeyAction::PageDown => self.select(|at| at + PAGE),
            KeyAction::First => self.select(|_| 0),
            KeyAction::Last => self.select(|_| usize::MAX),
            KeyAction::ShorterPeriod => return self.change_period(period_steps::shorter),
            KeyAction::LongerPeriod => return self.change_period(period_steps::longer),
            KeyAction::Reset => {
                return self.ask(Request::Reset(ResetRequest { job: self.job.clone(), level: None }));
            }
        }
        ViewAction::None
    }

    fn change_period(&mut self, next: fn(Sampling) -> Option<Sampling>) -> ViewAction {
        let rows = self.rows();
        let Some(row) = self.position(&rows).and_then(|at| rows.get(at)) else { return ViewAction::None };
        let (metric, level) = plan_key(&row.key);
        let Some(period) = row.period().and_then(|period| period.parse::<Sampling>().ok()) else {
            self.message = format!("cannot change the period of {metric}: its values are pushed by the user");
            return ViewAction::None;
        };
        let Some(requested) = next(period) else {
            self.message = format!("{period} is already the longest or shortest period");
            return ViewAction::None;
        };
        let plan = [(metric, requested.to_string())].into();
        let (job, duration) = (self.job.clone(), Some(LEASE.to_owned()));
        self.ask(Request::Set(SetRequest { job, level, ring: false, plan, duration }))
    }

    fn ask(&mut self, request: Request) -> ViewAction {
        if self.pending.is_some() {
            "the agent has not answered yet".clone_into(&mut self.message);
            return ViewAction::None;
        }
        if self.has_ended {
            "the job has ended".clone_into(&mut self.message);
            return ViewAction::None;
        }
        self.pending = Some(request.clone());
        ViewAction::Ask(Box::new(request))
    }

    /// Takes the error in place of the reply, too.
    pub(in crate::commands::watch) fn handle_reply(&mut self, reply: Result<Answer, Failure>) -> ViewAction {
        let request = self.pending.take();
        match (reply, request) {
            (Ok(answer @ Answer::Granted(_)), Some(Request::Set(lease))) => {
                self.handle_grant(answer, &lease);
            }
            (Ok(Answer::Reset(ResetAnswer { ended })), _) => {
                self.message = format!("{} ended", units::counted(ended, "lease"))
            }
            (
                Ok(Answer::Refused(Refusal { code, instead: Some(instead), .. })),
                Some(Request::Set(lease)),
            ) if code == "longest_lease" && lease.duration.as_deref() == Some(LEASE) => {
                // Repeats the request with the longest duration that is allowed.
                return self.ask(Request::Set(SetRequest { duration: Some(instead), ..lease }));
            }
            (Ok(Answer::Refused(refusal)), _) => self.message = format!("refused: {}", refusal.message),
            (Ok(_), _) => "unexpected answer of the agent".clone_into(&mut self.message),
            (Err(failure), _) => self.message = failure.to_string(),
        }
        ViewAction::None
    }

    fn handle_grant(&mut self, answer: Answer, lease: &SetRequest) {
        let Answer::Granted(LeaseAnswer { metrics, cost, until_us, .. }) = answer else { return };
        self.message = match (metrics.iter().next(), lease.plan.values().next()) {
            (Some((metric, period)), Some(requested)) if period != requested => {
                format!("{metric} stays at {period}: another lease or the baseline requires it")
            }
            (Some((metric, period)), _) => format!(
                "{metric} every {period} for {}; all sampling of the job costs {:.2} % of a CPU",
                lease.duration.as_deref().unwrap_or_default(),
                cost.cpu_percent
            ),
            (None, _) => "granted".to_owned(),
        };
        for (metric, period) in metrics {
            // Shown until the agent sends the new plan, within a second.
            if let Some(line) = self.plan.get_mut(&(metric, lease.level)).filter(|line| line.period != period)
            {
                *line =
                    PlanLine { period, cause: "lease".to_owned(), until_us: Some(until_us), ..line.clone() };
            }
        }
    }
}
