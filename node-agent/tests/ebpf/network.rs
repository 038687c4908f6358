//! Bytes and packets of the sockets of a job.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

use polymeter_test_harness::{skip, tests};

use crate::support::cgroup::Cgroup;
use crate::support::process::Process;
use crate::support::sources::{counted, read_network};
use crate::support::talker::{Talker, bound};

tests![
    datagrams_are_counted_exactly,
    datagrams_of_ipv6_are_counted_exactly,
    segments_of_a_stream_are_counted,
    cgroups_below_count_for_the_job,
];

const NETWORK: &str = "network.*";

fn check_datagrams(loopback: IpAddr, header: u64) {
    let (job, other) = (Cgroup::create(), Cgroup::create());
    let (mut job_source, mut other_source) = (counted(NETWORK, &job.0), counted(NETWORK, &other.0));
    assert_eq!((read_network(&mut job_source), read_network(&mut other_source)), ([0; 4], [0; 4]));
    let here = bound(loopback);
    let mut in_job = Talker::start(&job.0, loopback);
    let mut in_other = Talker::start(&other.0, loopback);
    in_job.send(&here, 40, 1000);
    in_other.send(&here, 7, 11);
    let sent = [0, 0, 40 * (1000 + header), 40];
    assert_eq!(read_network(&mut job_source), sent);
    assert_eq!(read_network(&mut other_source), [0, 0, 7 * (11 + header), 7]);
    in_job.receive(&here, 30, 300);
    // From one job to the other.
    in_other.process.tell(&format!("{} 5 50", in_job.address.port()));
    assert_eq!(in_other.process.answer(), "done");
    in_job.process.tell("0 5 50");
    assert_eq!(in_job.process.answer(), "done");
    let received = [30 * (300 + header) + 5 * (50 + header), 35];
    assert_eq!(read_network(&mut job_source), [received[0], received[1], sent[2], sent[3]]);
    assert_eq!(read_network(&mut other_source), [0, 0, 7 * (11 + header) + 5 * (50 + header), 12]);
    in_job.process.end();
    in_other.process.end();
}

fn datagrams_are_counted_exactly() {
    // IPv4 and UDP: 20 and 8 bytes.
    check_datagrams(IpAddr::V4(Ipv4Addr::LOCALHOST), 28);
}

fn datagrams_of_ipv6_are_counted_exactly() {
    if let Err(error) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        skip("ipv6", &format!("::1: {error}"));
    }
    check_datagrams(IpAddr::V6(Ipv6Addr::LOCALHOST), 48);
}

fn segments_of_a_stream_are_counted() {
    const BYTES: u64 = 4 << 20;
    let job = Cgroup::create();
    let mut source = counted(NETWORK, &job.0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut process = Process::start("stream", &job.0);
    process.tell(&format!("{} {BYTES}", listener.local_addr().unwrap().port()));
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut vec![0; BYTES as usize]).unwrap();
    stream.write_all(&[1]).unwrap();
    assert_eq!(process.answer(), "done");
    let [received, received_packets, sent, sent_packets] = read_network(&mut source);
    // A packet has at most 64 KiB, and a header at least 40 bytes.
    assert!(sent > BYTES && sent_packets * 65_536 >= sent, "{sent} in {sent_packets}");
    assert!(received > 40 && received_packets * 40 <= received, "{received} in {received_packets}");
    process.end();
}

fn cgroups_below_count_for_the_job() {
    let job = Cgroup::create();
    let step = Cgroup(job.0.join("step"));
    fs::create_dir(&step.0).unwrap();
    let (mut of_job, mut of_step) = (counted(NETWORK, &job.0), counted(NETWORK, &step.0));
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let (mut in_job, mut in_step) = (Talker::start(&job.0, loopback), Talker::start(&step.0, loopback));
    in_step.send(&here, 3, 72);
    assert_eq!((read_network(&mut of_job), read_network(&mut of_step)), ([0, 0, 300, 3], [0, 0, 300, 3]));
    in_job.send(&here, 1, 72);
    assert_eq!((read_network(&mut of_job), read_network(&mut of_step)), ([0, 0, 400, 4], [0, 0, 300, 3]));
    in_step.process.end();
    in_job.process.end();
    drop(step);
}
