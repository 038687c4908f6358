//! The HTTP/1.1 parser of the mock exporters: `GET /metrics`, one request after the other on one connection.
//! Free of I/O.

/// Maximum length of a request's header. Prometheus' has some 400 bytes.
pub(crate) const REQUEST_BYTES: usize = 8_192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Incomplete,
    Page {
        /// Length of the request. The next request follows it.
        length_bytes: usize,
        /// True if the connection stays open for further requests.
        stays: bool,
    },
    /// An unsupported request, with the HTTP status of the answer. The connection closes, since the bytes
    /// that follow cannot be parsed.
    Wrong(&'static str),
}

/// Parses the first request among these bytes.
pub(crate) fn read(bytes: &[u8]) -> Asked {
    const END: &[u8] = b"\r\n\r\n";
    let within = bytes.get(..REQUEST_BYTES).unwrap_or(bytes);
    let Some(head_bytes) = within.windows(END.len()).position(|window| window == END) else {
        let endless = bytes.len() >= REQUEST_BYTES;
        return if endless { Asked::Wrong("431 Request Header Fields Too Large") } else { Asked::Incomplete };
    };
    let head = within.get(..head_bytes).unwrap_or_default();
    let Ok(head) = std::str::from_utf8(head) else { return Asked::Wrong("400 Bad Request") };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version @ ("HTTP/1.0" | "HTTP/1.1")] = words.as_slice() else {
        return Asked::Wrong("400 Bad Request");
    };
    if target.split('?').next() != Some("/metrics") {
        return Asked::Wrong("404 Not Found");
    }
    if *method != "GET" {
        return Asked::Wrong("405 Method Not Allowed");
    }
    let mut stays = *version == "HTTP/1.1";
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Asked::Wrong("400 Bad Request") };
        let value = value.trim();
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("connection") && value.eq_ignore_ascii_case("close") {
            stays = false;
        } else if is("transfer-encoding") || (is("content-length") && value != "0") {
            // A body would be parsed as the next request.
            return Asked::Wrong("400 Bad Request");
        }
    }
    Asked::Page { length_bytes: head_bytes + END.len(), stays }
}

/// Appends an answer with this body to the bytes to send.
pub(crate) fn answer(status: &str, stays: bool, text: &[u8], answer: &mut Vec<u8>) {
    let connection = if stays { "" } else { "Connection: close\r\n" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n{connection}\r\n",
        text.len()
    );
    answer.extend_from_slice(head.as_bytes());
    answer.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of Prometheus 2.42.
    const PROMETHEUS: &str = "GET /metrics HTTP/1.1\r\nHost: 127.64.0.1:4000\r\nUser-Agent: Prometheus/2.42.0+ds\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";

    #[test]
    fn a_request_may_arrive_in_pieces_and_be_followed_by_another() {
        for end in 0..PROMETHEUS.len() {
            assert_eq!(read(&PROMETHEUS.as_bytes()[..end]), Asked::Incomplete, "{end}");
        }
        let page = Asked::Page { length_bytes: PROMETHEUS.len(), stays: true };
        assert_eq!(read(PROMETHEUS.as_bytes()), page);
        assert_eq!(read(PROMETHEUS.repeat(2).as_bytes()), page);
        let long = format!("{PROMETHEUS}{}", "x".repeat(2 * REQUEST_BYTES));
        assert_eq!(read(long.as_bytes()), page);
    }

    #[test]
    fn a_connection_ends_where_the_client_wants_it() {
        let stays = |text: &str| match read(text.as_bytes()) {
            Asked::Page { stays, .. } => stays,
            other @ (Asked::Incomplete | Asked::Wrong(_)) => panic!("{text:?}: {other:?}"),
        };
        assert!(stays("GET /metrics?a=b HTTP/1.1\r\n\r\n"));
        assert!(stays("GET /metrics HTTP/1.1\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"));
        assert!(!stays("GET /metrics HTTP/1.1\r\ncONNECTION:Close\r\n\r\n"));
        assert!(!stays("GET /metrics HTTP/1.0\r\n\r\n"));
    }

    #[test]
    fn anything_else_is_refused() {
        let status = |bytes: &[u8]| match read(bytes) {
            Asked::Wrong(status) => status[..3].to_owned(),
            other @ (Asked::Incomplete | Asked::Page { .. }) => panic!("{bytes:?}: {other:?}"),
        };
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status(b"GET /metrics\r\n\r\n"), "400");
        assert_eq!(status(b"GET  /metrics HTTP/1.1\r\n\r\n"), "400");
        assert_eq!(status(b"GET /metrics HTTP/2\r\n\r\n"), "400");
        assert_eq!(status(b"\r\n\r\n"), "400");
        assert_eq!(status(b"\xff\xfe\r\n\r\n"), "400");
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"), "400");
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), "400");
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), "400");
        assert_eq!(status(&vec![b'x'; REQUEST_BYTES]), "431");
        assert_eq!(read(&vec![b'x'; REQUEST_BYTES - 1]), Asked::Incomplete);
    }

    #[test]
    fn an_answer_states_its_length() {
        let mut bytes = Vec::new();
        answer("200 OK", true, b"a 1\n", &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\nContent-Length: 4"), "{head}");
        assert_eq!(body, "a 1\n");
        let mut last = Vec::new();
        answer("404 Not Found", false, b"", &mut last);
        assert!(String::from_utf8(last).unwrap().ends_with("Content-Length: 0\r\nConnection: close\r\n\r\n"));
    }
}
