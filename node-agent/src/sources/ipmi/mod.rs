//! Power of the node as its management controller measures it: DCMI over IPMI.
//!
//! A request takes some milliseconds to seconds, and occupies the controller: it belongs to the slow lane.

mod device;

use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::dcmi::{self, NoPower};
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;
use device::{Controller, Device};

const KIND: &str = "ipmi";

/// Paths of the device, by the driver's age.
const PATHS: [&str; 3] = ["dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0"];

pub(super) struct IpmiKind;

impl SourceKind for IpmiKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        vec!["power"]
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (Target::Node(_), Some(definition)) = (request.target, request.wanted.first()) else { return };
        match find(&request.host.mounts.root) {
            Some(path) => {
                let controller =
                    move || Device::open(&path).map(|device| Box::new(device) as Box<dyn Controller>);
                opening.push_custom(
                    KIND.to_owned(),
                    Box::new(PowerSource::new(definition, Box::new(controller))),
                );
            }
            None => opening.unavailable(
                definition.clone(),
                format!("no /{}: load the kernel modules ipmi_si and ipmi_devintf", PATHS[0]),
            ),
        }
    }
}

fn find(root: &Path) -> Option<PathBuf> {
    PATHS.iter().map(|path| root.join(path)).find(|path| path.exists())
}

type OpenController = dyn Fn() -> std::io::Result<Box<dyn Controller>> + Send;

struct PowerSource {
    slots: [Slot; 1],
    open: Box<OpenController>,
    /// `None` until the first read, and after an error.
    controller: Option<Box<dyn Controller>>,
}

impl std::fmt::Debug for PowerSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PowerSource").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl PowerSource {
    fn new(definition: &Definition, open: Box<OpenController>) -> Self {
        let slot = Slot::unlabelled(definition.clone());
        Self { slots: [slot], open, controller: None }
    }

    fn power(&mut self) -> Result<Result<u16, NoPower>, Errno> {
        let controller = match &mut self.controller {
            Some(controller) => controller,
            None => {
                let opened =
                    (self.open)().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                self.controller.insert(opened)
            }
        };
        let response = controller.ask(dcmi::NETFN, dcmi::COMMAND, &dcmi::REQUEST);
        if response.is_err() {
            self.controller = None;
        }
        Ok(dcmi::power(&response?))
    }
}

impl CustomSource for PowerSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        match self.power() {
            Ok(Ok(watts)) => {
                reading.set(0, u64::from(watts));
                Outcome::Read
            }
            // Another controller may answer after a restart of this one.
            Ok(Err(NoPower::Unsupported)) => Outcome::Retry(Errno::OPNOTSUPP),
            Ok(Err(NoPower::Later)) => Outcome::Retry(Errno::AGAIN),
            Ok(Err(NoPower::Malformed)) => Outcome::Retry(Errno::BADMSG),
            Err(errno) => Outcome::of_error(errno),
        }
    }

    /// Controllers measure about once a second.
    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::SECOND)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use polymeter_proto::catalogue;

    use super::*;

    type Answers = Arc<Mutex<VecDeque<Result<Vec<u8>, Errno>>>>;

    #[derive(Debug)]
    struct Prepared(Answers);

    impl Controller for Prepared {
        fn ask(&mut self, netfn: u8, command: u8, data: &[u8]) -> Result<Vec<u8>, Errno> {
            assert_eq!((netfn, command, data), (0x2c, 0x02, &[0xdc, 1, 0, 0][..]));
            self.0.lock().unwrap().pop_front().unwrap()
        }
    }

    fn response(watts: u16) -> Vec<u8> {
        let [low, high] = watts.to_le_bytes();
        let mut bytes = vec![0, 0xdc, low, high];
        bytes.extend([0; 14]);
        bytes.push(0x40);
        bytes
    }

    #[test]
    fn each_read_asks_the_controller() {
        let answers = [
            Ok(response(221)),
            Err(Errno::TIMEDOUT),
            Ok(vec![0xc1]),
            Ok(vec![0xc0]),
            Ok(vec![0]),
            Ok(response(300)),
        ];
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let opened = Arc::new(Mutex::new(0));
        let (shared, count) = (Arc::clone(&answers), Arc::clone(&opened));
        let definition = catalogue::find("node.ipmi.power").unwrap();
        let open: Box<OpenController> = Box::new(move || {
            *count.lock().unwrap() += 1;
            Ok(Box::new(Prepared(Arc::clone(&shared))))
        });
        let mut source = PowerSource::new(&definition, open);
        let mut read = || {
            let mut reading = Reading::absent(1);
            (source.read(&mut reading), reading.get(0))
        };
        assert_eq!(read(), (Outcome::Read, Some(221)));
        assert_eq!(read(), (Outcome::Retry(Errno::TIMEDOUT), None));
        assert_eq!(read(), (Outcome::Retry(Errno::OPNOTSUPP), None));
        assert_eq!(read(), (Outcome::Retry(Errno::AGAIN), None));
        assert_eq!(read(), (Outcome::Retry(Errno::BADMSG), None));
        assert_eq!(read(), (Outcome::Read, Some(300)));
        assert_eq!(*opened.lock().unwrap(), 2, "once more after the error of the device");
    }

    #[test]
    fn a_device_of_any_driver_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(root.path()), None);
        std::fs::create_dir_all(root.path().join("dev/ipmi")).unwrap();
        std::fs::write(root.path().join("dev/ipmi/0"), "").unwrap();
        assert_eq!(find(root.path()), Some(root.path().join("dev/ipmi/0")));
    }
}
