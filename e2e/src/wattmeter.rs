//! A wattmeter of several nodes, which sends lines: `node17 100`.

use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use polymeter_service::clock;

/// Time between two lines of a node.
const LINE_INTERVAL: Duration = Duration::from_millis(5);

/// Sends a line of each node every few milliseconds to everyone who connects, until the process of the test
/// ends: of the first node 100 and 101 in turn, of the others 7. Returns its address.
pub fn wattmeter(nodes: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, nodes) = (stream.unwrap(), nodes.clone());
            thread::spawn(move || {
                for number in 0_u64.. {
                    let watts = |node| if node == 0 { 100 + number % 2 } else { 7 };
                    let lines =
                        nodes.iter().enumerate().map(|(node, name)| format!("{name} {}\n", watts(node)));
                    if stream.write_all(lines.collect::<String>().as_bytes()).is_err() {
                        return;
                    }
                    clock::sleep(LINE_INTERVAL);
                }
            });
        }
    });
    address
}
