//! The damages of a file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A damage of a file. No text of them has a number that could be taken for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    Absent,
    Empty,
    Blank,
    /// First half, where the file has several lines.
    CutOff,
    /// Bytes that are no text.
    Binary,
    Zeros,
    /// A text without numbers.
    Words,
    /// A number out of range of any type.
    TooLarge,
    Negative,
    Hexadecimal,
    /// A line of a megabyte.
    LongLine,
    ManyLines,
    /// More than any file of the kernel has.
    Huge,
    Directory,
    DanglingLink,
    LinkLoop,
    /// A file that only its owner may read, in a process that may not.
    Denied,
    /// A FIFO that nothing writes to: opening it waits.
    Fifo,
}

/// Damages after which a read returns.
pub(crate) const DAMAGES: [Damage; 17] = [
    Damage::Absent,
    Damage::Empty,
    Damage::Blank,
    Damage::CutOff,
    Damage::Binary,
    Damage::Zeros,
    Damage::Words,
    Damage::TooLarge,
    Damage::Negative,
    Damage::Hexadecimal,
    Damage::LongLine,
    Damage::ManyLines,
    Damage::Huge,
    Damage::Directory,
    Damage::DanglingLink,
    Damage::LinkLoop,
    Damage::Denied,
];

impl Damage {
    /// Damages a file. Texts are changed in place, so that open descriptors see them, too.
    pub(crate) fn apply(self, path: &Path) {
        match self {
            Self::Absent => remove(path),
            Self::Directory => {
                remove(path);
                fs::create_dir(path).unwrap();
            }
            Self::DanglingLink => link(path, "nothing"),
            Self::LinkLoop => link(path, path.file_name().unwrap().to_str().unwrap()),
            Self::Denied => fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap(),
            Self::Fifo => {
                remove(path);
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            }
            Self::CutOff => {
                let text = fs::read(path).unwrap();
                if text.iter().filter(|byte| **byte == b'\n').count() > 1 {
                    fs::write(path, &text[..text.len() / 2]).unwrap();
                }
            }
            Self::Huge => fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap(),
            Self::Empty => write(path, b""),
            Self::Blank => write(path, b" \t\n\n \n"),
            Self::Binary => write(path, &[0xff, 0xfe, 0x80, b'\n', 0xc3, 0x28, b' ', 0xf0, b'\n'].repeat(40)),
            Self::Zeros => write(path, &[0; 4096]),
            Self::Words => write(path, "nan inf none\nN/A: -\n[not supported]\n\u{2028}é \n".as_bytes()),
            Self::TooLarge => write(path, b"99999999999999999999999999999999\n"),
            Self::Negative => write(path, b"-9223372036854775809 -\n"),
            Self::Hexadecimal => write(path, b"0xdeadbeef\n"),
            Self::LongLine => write(path, &b"x".repeat(1 << 20)),
            Self::ManyLines => write(path, &b"x: y\n".repeat(50_000)),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn link(path: &Path, target: &str) {
    remove(path);
    symlink(target, path).unwrap();
}
