//! A client that reads through a collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use polymeter_proto::control::{CollectorAnswer, ReadAccess, ReadRequest};
use polymeter_proto::read::{Frame, LENGTH_BYTES, Query, RowBlock, frame_length};
use rustix::process::{Gid, Uid};

pub(crate) struct ReadClient {
    pub(crate) stream: BufReader<UnixStream>,
    pub(crate) access: ReadAccess,
}

/// The kernel keeps credentials per thread.
pub(crate) fn connect_as(uid: u32, socket: &Path) -> UnixStream {
    std::thread::scope(|scope| {
        let connect = scope.spawn(|| {
            if uid != 0 {
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            UnixStream::connect(socket).unwrap()
        });
        connect.join().unwrap()
    })
}

impl ReadClient {
    /// Begins a session as a user, or returns the answer that refuses it.
    pub(crate) fn connect(uid: u32, socket: &Path) -> Result<Self, CollectorAnswer> {
        let mut stream = BufReader::new(connect_as(uid, socket));
        writeln!(stream.get_mut(), "{}", ReadRequest::LINE).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match serde_json::from_str(&line).unwrap() {
            CollectorAnswer::Reading(session) => Ok(Self { stream, access: session.access }),
            other => Err(other),
        }
    }

    pub(crate) fn send(&mut self, query: &Query) {
        self.stream.get_mut().write_all(&query.to_line()).unwrap();
    }

    /// Next frame, with its bytes; none at the end of the connection.
    pub(crate) fn frame(&mut self) -> Option<(Frame, Vec<u8>)> {
        let mut head = [0; LENGTH_BYTES];
        self.stream.read_exact(&mut head).ok()?;
        let mut content = vec![0; frame_length(head).unwrap()];
        self.stream.read_exact(&mut content).ok()?;
        Some((Frame::decode(&content).unwrap(), content))
    }

    /// Returns all bytes of the answer, too.
    pub(crate) fn ask(&mut self, query: &Query) -> (Vec<RowBlock>, Vec<u8>) {
        self.send(query);
        let (mut blocks, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let (frame, content) = self.frame().unwrap_or_else(|| panic!("no answer to {query:?}"));
            bytes.extend(content);
            match frame {
                Frame::Rows(block) => blocks.push(block),
                Frame::End => return (blocks, bytes),
                Frame::Error(error) => panic!("{query:?}: {error:?}"),
            }
        }
    }
}
