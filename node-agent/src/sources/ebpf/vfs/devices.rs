//! File systems on which operations are counted, by the numbers of their devices.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use super::super::map::{Sizes, create_hash, update};
use super::program::STRIPES;
use crate::sources::filesystem::has_space;
use crate::sources::lock::lock;
use crate::sources::mount_table::{Mount, visible};

pub(super) const DEVICES_MAX: usize = 16;

/// File systems, each with its lines in the counters of each job.
#[derive(Debug)]
pub(super) struct Devices {
    map: OwnedFd,
    /// Number of each device, and where it was mounted when it was found, in the order of their lines.
    known: Mutex<Vec<(u32, String)>>,
}

impl Devices {
    pub(super) fn create() -> io::Result<Self> {
        let entries = u32::try_from(DEVICES_MAX).map_err(io::Error::other)?;
        let map = create_hash(c"polymeter_devs", Sizes { key_bytes: 4, value_bytes: 4, entries })?;
        Ok(Self { map, known: Mutex::default() })
    }

    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Counts on file systems that were mounted since the last call, too. Returns the line and the directory
    /// of each that is mounted.
    pub(super) fn refresh(&self, mounts: Vec<Mount>) -> io::Result<Vec<(usize, String)>> {
        let mut known = lock(&self.known);
        let mut mounted = Vec::new();
        for mount in visible(mounts).into_iter().filter(has_space) {
            let Some(device) = number_of(&mount.device) else { continue };
            let place = known.iter().position(|(other, _)| *other == device);
            let place = match place {
                Some(place) => place,
                None if known.len() < DEVICES_MAX => {
                    let line = u32::try_from(known.len()).map_err(io::Error::other)? * STRIPES;
                    update(self.map(), &device, &line)?;
                    known.push((device, mount.point.clone()));
                    known.len() - 1
                }
                None => continue,
            };
            mounted.push((place, mount.point));
        }
        Ok(mounted)
    }
}

/// Device number as the kernel has it, from `MAJOR:MINOR`.
fn number_of(device: &str) -> Option<u32> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_as_in_the_kernel() {
        assert_eq!(number_of("254:1"), Some(0xfe0_0001));
        assert_eq!(number_of("0:53"), Some(53));
        assert_eq!([number_of("8"), number_of("8:x"), number_of("4096:0")], [None; 3]);
    }
}
