//! Settings of notices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sinks::outbound::ReceiverUrl;

const DIRECTORY: &str = "/etc/polymeter/notices.d";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Mail,
    Webhook,
    Command,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Mail, Self::Webhook, Self::Command];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Webhook => "webhook",
            Self::Command => "command",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticesConfig {
    pub actions: Vec<Action>,
    /// Notices are recorded and not sent.
    pub dry_run: bool,
    /// Directory of the site's rules.
    pub rules: PathBuf,
    /// Time between two examinations of a running job.
    pub interval: Duration,
    /// Delay after which actions that failed are repeated, once.
    pub retry_after: Duration,
    /// Maximum time of an action.
    pub timeout: Duration,
    /// Program that takes a mail on its standard input, and the recipients from its header.
    pub sendmail: PathBuf,
    pub from: String,
    /// Domain of the recipients; none for users of the machine.
    pub domain: Option<String>,
    /// None for the usual text.
    pub text: Option<PathBuf>,
    /// Gets a request for each notice.
    pub webhook: Option<ReceiverUrl>,
    /// Authorities that the server's certificate is checked with; none for the system's.
    pub webhook_ca_file: Option<PathBuf>,
    /// Absolute path, and arguments.
    pub command: Vec<String>,
}

impl Default for NoticesConfig {
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            dry_run: false,
            rules: Path::new(DIRECTORY).to_owned(),
            interval: Duration::from_secs(600),
            retry_after: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            sendmail: Path::new("/usr/sbin/sendmail").to_owned(),
            from: "polymeter".to_owned(),
            domain: None,
            text: None,
            webhook: None,
            webhook_ca_file: None,
            command: Vec::new(),
        }
    }
}

impl NoticesConfig {
    /// Keys of the settings that the actions lack.
    pub fn missing(&self) -> Vec<&'static str> {
        let lacks = |action: Action, is_missing: bool| self.actions.contains(&action) && is_missing;
        let webhook = lacks(Action::Webhook, self.webhook.is_none()).then_some("webhook");
        let command = lacks(Action::Command, self.command.is_empty()).then_some("command");
        webhook.into_iter().chain(command).collect()
    }

    pub fn programs(&self) -> Vec<PathBuf> {
        let mail = self.actions.contains(&Action::Mail).then(|| self.sendmail.clone());
        let command = self.command.first().filter(|_| self.actions.contains(&Action::Command));
        mail.into_iter().chain(command.map(PathBuf::from)).collect()
    }
}
