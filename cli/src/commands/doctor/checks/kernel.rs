//! Version of the kernel.

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// First version in which the kernel tells the ends of processes (`pidfd_open`), by which final samples are
/// taken.
const EXITS: (u32, u32) = (5, 3);

pub(super) fn check(_: &Machine, _: Role, findings: &mut Findings) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    judge(&release, findings);
}

fn judge(release: &str, findings: &mut Findings) {
    match version(release) {
        Some(version) if version < EXITS => findings.warning(
            format!("Linux {release} does not tell the ends of processes: final samples of jobs come late or never"),
            "use Linux 5.3 or later",
        ),
        Some(_) | None => findings.ok(format!("Linux {release}")),
    }
}

/// First two numbers of a release, such as `5.14.0-427.el9.x86_64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level;

    fn level(release: &str) -> Level {
        let mut findings = Findings::new("kernel", Role::Node);
        judge(release, &mut findings);
        findings.into_list()[0].level
    }

    #[test]
    fn old_kernels_are_named() {
        assert_eq!(level("4.18.0-553.el8_10.x86_64"), Level::Warning);
        assert_eq!(level("3.10.0-1160.el7.x86_64"), Level::Warning);
        assert_eq!(
            (level("5.14.0-427.el9"), level("6.1.0-28-amd64"), level("5.3")),
            (Level::Ok, Level::Ok, Level::Ok)
        );
    }
}
