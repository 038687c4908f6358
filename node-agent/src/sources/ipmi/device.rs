//! Device of the kernel's IPMI driver: a command to the node's management controller, and its response.
//! Source: `include/uapi/linux/ipmi.h` of Linux.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Longest wait for a response: the driver repeats a request to a controller that does not answer, and then
/// returns an error in its name.
const RESPONSE_S: i64 = 10;

/// Size of a response that is read; the driver refuses longer ones.
const RESPONSE_BYTES: u8 = 64;

/// Room for the address of a response, which may be of any type.
const ADDRESS_BYTES: u8 = 32;

/// Type of the address of the controller on this node, and its channel.
const SYSTEM_INTERFACE: libc::c_int = 0x0c;
const CONTROLLER: libc::c_short = 0x0f;

#[repr(C)]
struct Address {
    kind: libc::c_int,
    channel: libc::c_short,
    unit: libc::c_uchar,
}

#[repr(C)]
struct Message {
    netfn: libc::c_uchar,
    command: libc::c_uchar,
    length: libc::c_ushort,
    data: *mut libc::c_uchar,
}

#[repr(C)]
struct Request {
    address: *mut Address,
    address_length: libc::c_uint,
    number: libc::c_long,
    message: Message,
}

#[repr(C)]
struct Received {
    kind: libc::c_int,
    address: *mut Address,
    address_length: libc::c_uint,
    number: libc::c_long,
    message: Message,
}

/// `IPMICTL_SEND_COMMAND`.
const SEND_COMMAND: Opcode = opcode::read::<Request>(b'i', 13);

/// `IPMICTL_RECEIVE_MSG`.
const RECEIVE: Opcode = opcode::read_write::<Received>(b'i', 12);

pub(super) trait Controller: Send + std::fmt::Debug {
    /// Sends a command, and returns the data of its response, the completion code first. It blocks.
    fn ask(&mut self, netfn: u8, command: u8, data: &[u8]) -> Result<Vec<u8>, Errno>;
}

#[derive(Debug)]
pub(super) struct Device {
    file: File,
    /// Number of the last request, by which its response is known.
    number: libc::c_long,
}

impl Device {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(path)?, number: 0 })
    }

    fn send(&mut self, netfn: u8, command: u8, data: &[u8]) -> Result<(), Errno> {
        let mut address = Address { kind: SYSTEM_INTERFACE, channel: CONTROLLER, unit: 0 };
        let mut data = data.to_vec();
        self.number = self.number.wrapping_add(1);
        let mut request = Request {
            address: &raw mut address,
            address_length: length(size_of::<Address>())?,
            number: self.number,
            message: Message { netfn, command, length: length(data.len())?, data: data.as_mut_ptr() },
        };
        // SAFETY: the operation takes this structure. What it points to lives for the length of the call,
        // which only reads it.
        #[expect(unsafe_code, reason = "no safe crate has the operations of this device")]
        unsafe {
            ioctl(&self.file, Updater::<SEND_COMMAND, Request>::new(&mut request))
        }
    }

    fn receive(&self) -> Result<(libc::c_long, Vec<u8>), Errno> {
        let mut address = [0_u8; ADDRESS_BYTES as usize];
        let mut data = [0_u8; RESPONSE_BYTES as usize];
        let mut received = Received {
            kind: 0,
            address: address.as_mut_ptr().cast(),
            address_length: ADDRESS_BYTES.into(),
            number: 0,
            message: Message { netfn: 0, command: 0, length: RESPONSE_BYTES.into(), data: data.as_mut_ptr() },
        };
        // SAFETY: the operation takes this structure. What it points to lives for the length of the call,
        // which writes at most the given lengths.
        #[expect(unsafe_code, reason = "no safe crate has the operations of this device")]
        unsafe {
            ioctl(&self.file, Updater::<RECEIVE, Received>::new(&mut received))?;
        }
        let data = data.get(..usize::from(received.message.length)).unwrap_or(&data);
        Ok((received.number, data.to_vec()))
    }
}

impl Controller for Device {
    fn ask(&mut self, netfn: u8, command: u8, data: &[u8]) -> Result<Vec<u8>, Errno> {
        self.send(netfn, command, data)?;
        loop {
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut polled, Some(&Timespec { tv_sec: RESPONSE_S, tv_nsec: 0 })) {
                Ok(0) => return Err(Errno::TIMEDOUT),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
                Ok(_) => {}
            }
            match self.receive()? {
                (number, response) if number == self.number => return Ok(response),
                // The late response of an earlier request.
                _ => {}
            }
        }
    }
}

fn length<T: TryFrom<usize>>(bytes: usize) -> Result<T, Errno> {
    T::try_from(bytes).map_err(|_beyond| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that a C program prints for the macros of `linux/ipmi.h`.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn operations_have_the_numbers_of_the_kernel() {
        assert_eq!((SEND_COMMAND, RECEIVE), (0x8028_690d, 0xc030_690c));
    }

    #[test]
    fn a_file_that_is_no_such_device_refuses_the_command() {
        let mut null = Device::open(Path::new("/dev/null")).unwrap();
        assert_eq!(null.ask(0x2c, 2, &[0xdc]), Err(Errno::NOTTY));
        assert!(Device::open(Path::new("/nonexistent")).is_err());
    }
}
