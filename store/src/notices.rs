//! Notices: what was sent to persons about jobs, and who wants none.
//!
//! A collector claims a notice before it sends it: of several collectors one does, and a collector that ends
//! meanwhile leaves a notice that is not repeated.

use crate::backend::Connection;
use crate::error::Context;
use crate::value::Value;
use crate::{StoreError, StoreUrl, removal};

/// Stands for all rules.
const ALL: &str = "*";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNotice {
    pub rule: String,
    /// What the notice is about, such as a job: there is one notice for each rule and this.
    pub about: String,
    pub job_key: i64,
    pub uid: Option<i64>,
    /// Recipient of the mail, or the user's name.
    pub recipient: String,
    pub subject: String,
    pub text: String,
}

/// Choice of a user who wants no notices of a rule, or none at all without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptOut {
    pub uid: u32,
    pub rule: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeClaim {
    /// The notice is to be sent, and has this number.
    Send(i64),
    /// The notice was sent before, or another collector sends it.
    Known,
    OptedOut,
}

/// Connection to the notices. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct NoticeTable(Box<dyn Connection>);

impl NoticeTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    pub fn claim(&mut self, notice: &NewNotice) -> Result<NoticeClaim, StoreError> {
        const ACTION: &str = "claim a notice";
        let connection = &mut *self.0;
        let about = [notice.rule.as_str().into(), notice.about.as_str().into()];
        let known = "SELECT number FROM notice WHERE rule = $1 AND about = $2";
        if connection.select_first::<i64>(known, &about).context(ACTION)?.is_some() {
            return Ok(NoticeClaim::Known);
        }
        let is_out = format!(
            "SELECT uid FROM notice_opt_out WHERE uid = $1 AND (rule = $2 OR rule = '{ALL}') LIMIT 1"
        );
        let of_user = [notice.uid.into(), notice.rule.as_str().into()];
        if notice.uid.is_some()
            && connection.select_first::<i64>(&is_out, &of_user).context(ACTION)?.is_some()
        {
            return Ok(NoticeClaim::OptedOut);
        }
        let now_us = removal::now_us(connection)?;
        let insert = "INSERT INTO notice (rule, about, job_key, uid, recipient, subject, text, created)
             VALUES ($1, $2, $3, CAST($4 AS bigint), $5, $6, $7, $8)
             ON CONFLICT (rule, about) DO NOTHING RETURNING number";
        let parameters = [
            notice.rule.as_str().into(),
            notice.about.as_str().into(),
            notice.job_key.into(),
            notice.uid.into(),
            notice.recipient.as_str().into(),
            notice.subject.as_str().into(),
            notice.text.as_str().into(),
            Value::Time(now_us),
        ];
        connection.begin().context(ACTION)?;
        let number = connection.select_first::<i64>(insert, &parameters).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(number.map_or(NoticeClaim::Known, NoticeClaim::Send))
    }

    pub fn finish(&mut self, number: i64, result: &str) -> Result<(), StoreError> {
        const ACTION: &str = "record a notice";
        self.0.begin().context(ACTION)?;
        let update = "UPDATE notice SET result = $2 WHERE number = $1";
        self.0.execute(update, &[number.into(), result.into()]).context(ACTION)?;
        self.0.commit().context(ACTION)
    }

    /// Records whether a user wants the notices of a rule, or of all.
    pub fn opt(&mut self, uid: u32, rule: Option<&str>, is_out: bool) -> Result<(), StoreError> {
        const ACTION: &str = "record a choice of notices";
        let parameters = [i64::from(uid).into(), rule.unwrap_or(ALL).into()];
        let change = match (is_out, rule) {
            (true, _) => {
                "INSERT INTO notice_opt_out (uid, rule) VALUES ($1, $2) ON CONFLICT (uid, rule) DO NOTHING"
            }
            (false, Some(_)) => "DELETE FROM notice_opt_out WHERE uid = $1 AND rule = $2",
            (false, None) => "DELETE FROM notice_opt_out WHERE uid = $1 AND (rule = $2 OR true)",
        };
        self.0.begin().context(ACTION)?;
        self.0.execute(change, &parameters).context(ACTION)?;
        self.0.commit().context(ACTION)
    }

    /// Returns who wants no notices, of a user or of all.
    pub fn opted_out(&mut self, uid: Option<u32>) -> Result<Vec<OptOut>, StoreError> {
        let select = "SELECT uid, rule FROM notice_opt_out
             WHERE uid = coalesce(CAST($1 AS bigint), uid) ORDER BY uid, rule";
        let rows: Vec<(i64, String)> =
            self.0.select(select, &[uid.map(i64::from).into()]).context("read the choices of notices")?;
        let mut opted_out = Vec::with_capacity(rows.len());
        for (uid, rule) in rows {
            // The table has what `opt` wrote.
            let Ok(uid) = u32::try_from(uid) else { continue };
            opted_out.push(OptOut { uid, rule: Some(rule).filter(|rule| rule != ALL) });
        }
        Ok(opted_out)
    }
}
