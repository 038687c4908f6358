//! An HTTP server that answers as the test orders, for one connection at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};

pub(in crate::sinks) struct Request {
    pub(in crate::sinks) head: String,
    pub(in crate::sinks) body: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::sinks) enum Reply {
    /// Status and headers, and the body.
    Answer(&'static str, &'static [u8]),
    Hang,
}

/// Gives `replies`, and then the usual one. Returns the port, and the requests that were accepted.
pub(in crate::sinks) fn server(replies: &'static [Reply], usual: Reply) -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = sync_channel(1000);
    std::thread::spawn(move || {
        let mut replies = replies.iter();
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            while let Some(request) = read_request(&mut reader) {
                let Reply::Answer(head, body) = *replies.next().unwrap_or(&usual) else {
                    // Until the client gives up.
                    reader.read_exact(&mut [0]).ok();
                    break;
                };
                if head.starts_with('2') && requests.send(request).is_err() {
                    return;
                }
                let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
                let answer = [head.as_bytes(), body].concat();
                // The client may be gone.
                reader.get_mut().write_all(&answer).ok();
            }
        }
    });
    (port, received)
}

/// None at the end of the connection.
fn read_request(reader: &mut BufReader<impl Read>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body })
}
