//! A process of a laid-out node that uses an AMD GPU: its open file of the GPU, and its directory of amdkfd.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Text of a client of amdgpu, Linux 6.13.
const CLIENT: &str = include_str!("../../../node-agent/tests/drm/amdgpu-6.13");

/// Number of the GPU in amdkfd.
pub(super) const GPU_ID: u32 = 51_140;

pub(super) fn add(root: &Path, pid: u32) -> io::Result<()> {
    fs::create_dir_all(root.join("sys/class/drm/renderD128/device"))?;
    open_gpu(&root.join("proc").join(pid.to_string()), pid)?;
    let of_kfd = root.join("sys/class/kfd/kfd/proc").join(pid.to_string());
    let statistics = of_kfd.join(format!("stats_{GPU_ID}"));
    fs::create_dir_all(&statistics)?;
    fs::write(of_kfd.join(format!("vram_{GPU_ID}")), "8589934592\n")?;
    fs::write(of_kfd.join(format!("sdma_{GPU_ID}")), "250000\n")?;
    fs::write(statistics.join("evicted_ms"), "3\n")?;
    fs::write(statistics.join("cu_occupancy"), "96\n")
}

/// Replaces the link to a process's directory by one with the same files, but with one descriptor, that of
/// the GPU.
fn open_gpu(directory: &Path, pid: u32) -> io::Result<()> {
    let real = Path::new("/proc").join(pid.to_string());
    fs::remove_file(directory)?;
    for own in ["fd", "fdinfo"] {
        fs::create_dir_all(directory.join(own))?;
    }
    for entry in fs::read_dir(&real)? {
        let name = entry?.file_name();
        if name != "fd" && name != "fdinfo" {
            symlink(real.join(&name), directory.join(&name))?;
        }
    }
    symlink("/dev/dri/renderD128", directory.join("fd/5"))?;
    fs::write(directory.join("fdinfo/5"), CLIENT)
}
