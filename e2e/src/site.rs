//! The collector's pages, as a browser of a user reaches them: through a proxy that names the user.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use serde_json::json;

use crate::browser::Browser;
use crate::nginx::NGINX_USER;
use crate::wait_until;

/// Configuration of an API at a socket, for [`Proxy`] and a web server.
pub fn api_config(socket: &Path) -> String {
    format!(
        "[api]\nlisten = \"{}\"\ntrusted_proxies = [\"user:root\", \"user:{NGINX_USER}\"]\n",
        socket.display()
    )
}

/// A TCP port of this machine whose connections lead to the API. The browser sends the header with the user.
pub struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// Opens the port. Its thread ends with the test program, the threads of its connections end with them.
    pub fn start(socket: &Path) -> Self {
        let socket = socket.to_owned();
        wait_until("the API listens", || UnixStream::connect(&socket).is_ok());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                forward(client, &socket);
            }
        });
        Self { address }
    }

    pub fn url(&self, page: &str) -> String {
        format!("http://{}/{page}", self.address)
    }

    /// Starts a browser that reaches only the proxy, as a user if there is one.
    pub fn browser(&self, user: Option<&str>) -> Browser {
        let mut browser = Browser::with_access(Some(self.address));
        browser.resize(1280, 900);
        if let Some(user) = user {
            browser.call("Network.setExtraHTTPHeaders", json!({"headers": {"X-Remote-User": user}}));
        }
        browser
    }

    /// Starts a browser and waits for the first contents of a page.
    pub fn open(&self, user: &str, page: &str) -> Browser {
        let mut browser = self.browser(Some(user));
        browser.open_url(&self.url(page));
        browser.wait_until("document.documentElement.dataset.ready");
        browser
    }

    /// Fails if the page has asked for anything from elsewhere.
    pub fn assert_own_requests(&self, browser: &mut Browser) {
        let origin = self.url("");
        let foreign: Vec<String> = browser
            .requests()
            .into_iter()
            .filter(|url| !url.starts_with(&origin) && url != "about:blank")
            .collect();
        assert_eq!(foreign, Vec::<String>::new());
    }
}

fn forward(client: TcpStream, socket: &Path) {
    // The collector may be gone: the client sees the end of its connection.
    let Ok(server) = UnixStream::connect(socket) else { return };
    let (mut requests, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut to_server, mut to_client) = (server, client);
    thread::spawn(move || {
        carry(&mut requests, &mut to_server);
        to_server.shutdown(Shutdown::Write).ok();
    });
    thread::spawn(move || {
        carry(&mut answers, &mut to_client);
        to_client.shutdown(Shutdown::Both).ok();
    });
}

/// Carries bytes until one end is closed.
fn carry(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
