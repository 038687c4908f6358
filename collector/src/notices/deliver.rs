//! Actions: mail, a request to a server, a command.

use std::path::Path;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};
use polymeter_service::clock::Clock;
use polymeter_service::http_client::NoAnswer;
use polymeter_service::printable::printable;
use rustix::process::geteuid;

use super::config::{Action, NoticesConfig};
use super::message::Message;
use crate::job_end::{End, Invocation, command_fault};
use crate::shutdown::Shutdown;
use crate::sinks::outbound::{ReceiverUrl, connect_to};

/// Cut from the standard error of a program.
const ERROR_CHARS: usize = 200;

pub(super) struct Delivery<'a> {
    pub(super) config: &'a NoticesConfig,
    pub(super) clock: Clock,
    pub(super) shutdown: &'a Shutdown,
}

impl Delivery<'_> {
    pub(super) fn send(&self, action: Action, message: &Message, to: Option<&str>) -> Result<(), String> {
        match action {
            Action::Mail => self.mail(message, to),
            Action::Webhook => self.request(message),
            Action::Command => self.command(message),
        }
    }

    fn mail(&self, message: &Message, to: Option<&str>) -> Result<(), String> {
        let to = to.ok_or("the name of the user is not known, or no name for mail")?;
        let arguments = ["-t".to_owned(), "-i".to_owned()];
        self.run(&self.config.sendmail, &arguments, &[], &message.mail(&self.config.from, to))
    }

    fn command(&self, message: &Message) -> Result<(), String> {
        let (program, arguments) = self.config.command.split_first().ok_or("no command is configured")?;
        self.run(Path::new(program), arguments, &message.variables(), &message.json())
    }

    fn run(
        &self,
        program: &Path,
        arguments: &[String],
        variables: &[(&'static str, String)],
        input: &[u8],
    ) -> Result<(), String> {
        // The file may have changed since the start.
        if let Some(fault) = command_fault(program, Some(geteuid().as_raw())) {
            return Err(fault);
        }
        let timeout = self.config.timeout;
        let invocation = Invocation { program, arguments, variables, input, timeout };
        let ended = invocation
            .run(self.clock, self.shutdown)
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let errors = printable(&String::from_utf8_lossy(&ended.errors), ERROR_CHARS);
        match ended.end {
            End::Exited(status) if status.success() => Ok(()),
            End::Exited(status) => Err(format!("{} ended with {status}: {errors}", program.display())),
            End::TimedOut => Err(format!("{} was killed after {timeout:?}", program.display())),
            End::Stopped => Err("interrupted, since the collector stopped".to_owned()),
        }
    }

    fn request(&self, message: &Message) -> Result<(), String> {
        let url = self.config.webhook.as_ref().ok_or("no server is configured")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let request = post(url, self.config.webhook_ca_file.as_deref(), message.json());
        let timeout = self.config.timeout;
        let sent = runtime.block_on(async { tokio::time::timeout(timeout, request).await });
        match sent {
            Ok(Ok(answer)) if answer.status.is_success() => Ok(()),
            Ok(Ok(answer)) => Err(answer.fault()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_elapsed) => Err(format!("no answer within {timeout:?}")),
        }
    }
}

struct ServerAnswer {
    status: StatusCode,
    /// Place where a redirect leads.
    location: Option<String>,
}

impl ServerAnswer {
    fn fault(&self) -> String {
        let status = self.status.as_u16();
        match &self.location {
            Some(location) if self.status.is_redirection() => format!(
                "the server answered with the status {status}, which leads to {}; name that in `webhook`",
                printable(location, ERROR_CHARS)
            ),
            _ => format!("the server answered with the status {status}"),
        }
    }
}

async fn post(url: &ReceiverUrl, ca_file: Option<&Path>, body: Vec<u8>) -> Result<ServerAnswer, NoAnswer> {
    let mut sender = connect_to(url, ca_file).await?;
    sender.ready().await?;
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() =
        url.target().parse().map_err(|_invalid| NoAnswer::because("invalid path of the URL"))?;
    let host =
        HeaderValue::from_str(url.authority()).map_err(|_invalid| NoAnswer::because("invalid host"))?;
    request.headers_mut().insert("host", host);
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    let agent = concat!("polymeter-collector/", env!("CARGO_PKG_VERSION"));
    request.headers_mut().insert("user-agent", HeaderValue::from_static(agent));
    let answer = sender.send_request(request).await?;
    let location = answer.headers().get(LOCATION);
    let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
    Ok(ServerAnswer { status: answer.status(), location })
}
