//! The settings of notices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sinks::remote_write::ReceiverUrl;

/// The directory of a site's rules of notices.
const DIRECTORY: &str = "/etc/polymeter/notices.d";

/// A way in which a notice is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A mail to the owner of the job.
    Mail,
    /// A request to a server.
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
    /// The ways in which each notice is sent.
    pub actions: Vec<Action>,
    /// True if notices are recorded and not sent.
    pub dry_run: bool,
    /// The directory of the site's rules.
    pub rules: PathBuf,
    /// The time between two examinations of a running job.
    pub interval: Duration,
    /// The time after which actions that failed are repeated, once.
    pub retry_after: Duration,
    /// The program that takes a mail on its standard input, and the recipients from its header.
    pub sendmail: PathBuf,
    /// The sender.
    pub from: String,
    /// The domain of the recipients; none for users of the machine.
    pub domain: Option<String>,
    /// The file with the text; none for the usual one.
    pub text: Option<PathBuf>,
    /// The server that gets a request for each notice.
    pub webhook: Option<ReceiverUrl>,
    /// The file with the certificates of authorities that the server's is checked with; none for the
    /// system's.
    pub webhook_ca_file: Option<PathBuf>,
    /// The absolute path of the command, and its arguments.
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
    /// Returns the actions that lack a setting, each with its key.
    pub fn missing(&self) -> Vec<&'static str> {
        let lacks = |action: Action, is_missing: bool| self.actions.contains(&action) && is_missing;
        let webhook = lacks(Action::Webhook, self.webhook.is_none()).then_some("webhook");
        let command = lacks(Action::Command, self.command.is_empty()).then_some("command");
        webhook.into_iter().chain(command).collect()
    }

    /// Returns the programs that notices start.
    pub fn programs(&self) -> Vec<PathBuf> {
        let mail = self.actions.contains(&Action::Mail).then(|| self.sendmail.clone());
        let command = self.command.first().filter(|_| self.actions.contains(&Action::Command));
        mail.into_iter().chain(command.map(PathBuf::from)).collect()
    }
}
