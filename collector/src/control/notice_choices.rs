//! Choices of users who want no notices, as they arrive through the control endpoints.

use std::io;
use std::path::PathBuf;

use polymeter_analysis::advice::Advice;
use polymeter_proto::control::{
    CollectorAnswer, NoticeChoice, NoticeChoices, NoticesRequest, Refusal, TRIGGER_NOTICES,
};
use polymeter_service::users;
use polymeter_store::reader::Access;
use polymeter_store::{NoticeTable, OptOut, StoreError, StoreUrl, TableThread};

use crate::roles::Roles;

/// Rules of which one user wants no notices. Names of triggers are free.
const CHOICES: usize = 100;

#[derive(Debug)]
pub(crate) struct NoticeChoiceService {
    table: TableThread<NoticeTable>,
    /// Directory of the site's rules.
    rules: PathBuf,
    roles: Roles,
}

impl NoticeChoiceService {
    pub(crate) fn start(store: StoreUrl, rules: PathBuf, roles: Roles) -> io::Result<Self> {
        Ok(Self { table: TableThread::start("notices", store, NoticeTable::open)?, rules, roles })
    }

    /// Refuses a rule that does not exist, and stores nothing then.
    pub(super) async fn execute(
        &self,
        uid: u32,
        request: NoticesRequest,
    ) -> Result<CollectorAnswer, Refusal> {
        let (rules, roles) = (self.rules.clone(), self.roles.clone());
        let answer = self.table.run(move |table| match request.off {
            None => list(table, uid, roles.access(uid) == Access::All).map(Ok),
            Some(is_off) => choose(table, uid, request.rule.as_deref(), is_off, known_rules(&rules)),
        });
        let busy = || Refusal::new("busy", None, "the store does not answer; try again in a moment");
        answer.await.ok_or_else(busy)?
    }
}

/// Ids of the rules of notices. A file with faults is left out, as it is when jobs are examined.
fn known_rules(directory: &std::path::Path) -> Vec<String> {
    let (rules, _) = Advice::notices(directory);
    rules.rules().iter().map(|rule| rule.id.clone()).collect()
}

fn choose(
    table: &mut NoticeTable,
    uid: u32,
    rule: Option<&str>,
    is_off: bool,
    known: Vec<String>,
) -> Result<Result<CollectorAnswer, Refusal>, StoreError> {
    let is_of_trigger = rule.is_some_and(|rule| rule.starts_with(TRIGGER_NOTICES));
    if is_of_trigger && is_off && table.opted_out(Some(uid))?.len() >= CHOICES {
        return Ok(Err(too_many()));
    }
    if let Some(unknown) = rule.filter(|rule| !is_of_trigger && !known.iter().any(|one| one == rule)) {
        // A rule may have gone since a user turned it off.
        let is_turned_on = !is_off
            && table.opted_out(Some(uid))?.iter().any(|choice| choice.rule.as_deref() == Some(unknown));
        if !is_turned_on {
            return Ok(Err(unknown_rule(unknown, known)));
        }
    }
    table.opt(uid, rule, is_off)?;
    Ok(Ok(CollectorAnswer::Done {}))
}

fn unknown_rule(rule: &str, mut known: Vec<String>) -> Refusal {
    known.sort();
    let message = format!(
        "there is no rule `{rule}` of notices; name a trigger as trigger:NAME, or one of {}",
        known.join(", ")
    );
    Refusal::new("unknown_rule", Some("rule"), &message)
}

fn too_many() -> Refusal {
    let message = format!(
        "you have turned off {CHOICES} rules; turn some on again with `polymeter notices --on RULE`, or all off without a rule"
    );
    Refusal::new("too_many", Some("rule"), &message)
}

fn list(table: &mut NoticeTable, uid: u32, all_users: bool) -> Result<CollectorAnswer, StoreError> {
    let opted_out = table.opted_out((!all_users).then_some(uid))?;
    let choices = opted_out
        .into_iter()
        .map(|OptOut { uid, rule }| NoticeChoice { uid, user: users::name_of(uid), rule })
        .collect();
    Ok(CollectorAnswer::NoticeChoices(NoticeChoices { all_users, choices }))
}
