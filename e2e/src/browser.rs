//! Headless Chromium, driven through the DevTools protocol over a pipe: messages of JSON that end with a zero
//! byte.
//!
//! The pipe needs neither a port nor a WebSocket, and thus no crate: `--remote-debugging-pipe` reads from
//! descriptor 3 and writes to descriptor 4.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Name of the program in Debian's package.
const PROGRAM: &str = "chromium";

/// Time without an answer after which the browser is considered hung.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// How many messages may wait.
const MESSAGES: usize = 10_000;

pub fn missing() -> Option<String> {
    let found = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("{PROGRAM} --version: {}", output.status)),
        Err(error) => Some(format!("{PROGRAM}: {error}")),
    }
}

/// An answer that a page received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    pub url: String,
    /// Head and body as they were sent.
    pub transferred_bytes: f64,
    /// Body after its decompression.
    pub decoded_bytes: f64,
}

/// A browser with one page, which ends when the value is dropped.
pub struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser without network access.
    pub fn start() -> Self {
        Self::with_access(None)
    }

    /// Starts a browser that reaches one address at most.
    pub fn with_access(address: Option<SocketAddr>) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", PROGRAM]);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--force-device-scale-factor=1",
            // Nothing listens there, and the browser must not pass the proxy by.
            "--proxy-server=127.0.0.1:9",
        ]);
        let allowed = address.map_or_else(String::new, |address| format!(";{address}"));
        command.arg(format!("--proxy-bypass-list=<-loopback>{allowed}"));
        if rustix::process::geteuid().is_root() {
            // Its sandbox refuses to run as root.
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        // Chromium leaves files there when it is killed.
        command.env("HOME", profile.path()).env("TMPDIR", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = sync_channel(MESSAGES);
        thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice::<Value>(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let events = Vec::new();
        let mut browser =
            Self { child, requests, messages, last_id: 0, session: None, events, _profile: profile };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the DevTools protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&request).unwrap();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap();
        loop {
            let mut message = self.next(method);
            if message["id"] == self.last_id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn next(&mut self, waiting_for: &str) -> Value {
        self.messages
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|error| panic!("the browser does not answer {waiting_for}: {error}"))
    }

    pub fn wait_for(&mut self, event: &str) -> Value {
        loop {
            if let Some(position) = self.events.iter().position(|known| known["method"] == event) {
                return self.events.remove(position)["params"].take();
            }
            let message = self.next(event);
            self.events.push(message);
        }
    }

    pub fn open(&mut self, path: &Path) {
        self.open_url(&format!("file://{}", path.display()));
    }

    pub fn open_url(&mut self, url: &str) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened.get("errorText").is_none(), "{opened}");
        self.wait_for("Page.loadEventFired");
    }

    /// Evaluates a JavaScript expression, waits for its promise and returns its value.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until a JavaScript expression is true. Fails with the text of the page if it stays false.
    pub fn wait_until(&mut self, expression: &str) {
        let frames = format!(
            "(async () => {{ const end = performance.now() + {}; while (!({expression})) {{ \
                 if (performance.now() > end) return document.body.innerText.slice(0, 3000); \
                 await new Promise((next) => setTimeout(next, 20)); }} return true; }})()",
            ANSWER_MAX.as_millis() * 3 / 4
        );
        assert_eq!(self.eval(&frames), true, "{expression}");
    }

    /// Scrolls to an element and returns the coordinates of its centre.
    pub fn middle(&mut self, selector: &str) -> (f64, f64) {
        let place = self.eval(&format!(
            "(() => {{ const found = document.querySelector('{selector}'); found.scrollIntoView({{ block: 'center' }});
               const place = found.getBoundingClientRect(); return [place.x + place.width / 2, place.y + place.height / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let mobile = width < 500;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Takes a PNG picture of the window.
    pub fn picture(&mut self) -> Vec<u8> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}));
        STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let buttons = u32::from(kind != "mouseReleased" && clicks > 0);
        let event =
            json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": clicks});
        self.call("Input.dispatchMouseEvent", event);
    }

    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key}));
        }
    }

    pub fn tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub fn enter(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub fn enter_link(&mut self) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        self.enter();
        self.wait_for("Page.loadEventFired");
    }

    /// Sets media features, such as the preferred colour scheme.
    pub fn set_media(&mut self, features: &[(&str, &str)]) {
        let features: Vec<Value> =
            features.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Messages of the console, exceptions and violations of the page's policy.
    pub fn complaints(&mut self) -> Vec<String> {
        // Events that precede the answer have arrived.
        self.eval("0");
        self.events
            .iter()
            .filter(|event| {
                let method = event["method"].as_str();
                matches!(
                    method,
                    Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded")
                )
            })
            .map(Value::to_string)
            .collect()
    }

    /// Answers so far, with their sizes.
    pub fn transfers(&mut self) -> Vec<Transfer> {
        self.eval("0");
        let mut by_request: BTreeMap<&str, Transfer> = BTreeMap::new();
        for event in &self.events {
            let parameters = &event["params"];
            let Some(id) = parameters["requestId"].as_str() else { continue };
            let bytes = |name: &str| parameters[name].as_f64().unwrap_or_default();
            let transfer = by_request.entry(id).or_default();
            match event["method"].as_str() {
                Some("Network.requestWillBeSent") => {
                    parameters["request"]["url"].as_str().unwrap_or_default().clone_into(&mut transfer.url);
                }
                // A stream does not end: its size is that of its parts.
                Some("Network.dataReceived") => {
                    transfer.decoded_bytes += bytes("dataLength");
                    transfer.transferred_bytes += bytes("encodedDataLength");
                }
                Some("Network.loadingFinished") => transfer.transferred_bytes = bytes("encodedDataLength"),
                _ => {}
            }
        }
        by_request.into_values().filter(|transfer| !transfer.url.is_empty()).collect()
    }

    /// Total of what was transferred so far.
    pub fn transferred_bytes(&mut self) -> f64 {
        self.transfers().iter().map(|transfer| transfer.transferred_bytes).sum()
    }

    /// Forgets complaints and requests so far.
    pub fn forget(&mut self) {
        self.eval("0");
        self.events.clear();
    }

    pub fn requests(&mut self) -> Vec<String> {
        self.eval("0");
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests
            .map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
