//! The texts of a laid-out node that are not among the fixtures.

/// Mounts beside those of this machine.
pub(super) const MOUNTINFO: &str = "\
9001 1 0:9001 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw
9002 1 0:9002 / /home rw - nfs4 10.1.0.2:/export/home rw,vers=4.2
9003 1 0:9003 / /gpfs rw - gpfs /dev/scratch rw
9005 1 0:9005 / /beegfs rw - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
9004 1 0:9004 / /sys/fs/resctrl rw - resctrl resctrl rw
";

/// Statistics of the NFS mount, Linux 5.14.
pub(super) const MOUNTSTATS: &str = "\
device proc mounted on /proc with fstype proc
device 10.1.0.2:/export/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,nconnect=2,timeo=600,retrans=2,sec=sys
\tage:\t86412
\tcaps:\tcaps=0xf3ffbfff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t1 2 33 4 57 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 2 3 11 12
\tbytes:\t1234567 7654321 4096 8192 1300000 7700000 318 99
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 785 1 1 0 24 700 699 1 812 2 8 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 120 123 3 26400 1315360 17 4096 5150 2
\t       WRITE: 9 9 0 1 2 3 4 5 0
\t     GETATTR: 400 400 0 96000 98400 4 290 310 0
";

/// Statistics of the Lustre mount, Lustre 2.15.
pub(super) const LUSTRE: &str = "\
snapshot_time             1700000369.331040915 secs.nsecs
start_time                1699990000.000000000 secs.nsecs
elapsed_time              10369.331040915 secs.nsecs
read_bytes                449131 samples [bytes] 1 4194304 91756123 31789123897
write_bytes               23131 samples [bytes] 1 4194304 91756123 31789123897
read                      449131 samples [usec] 1 7252 102707 8835364
write                     23131 samples [usec] 1 7252 102707 8835364
open                      1381 samples [usec] 1 7252 102707 8835364
close                     1381 samples [usec] 1 7252 102707 8835364
getattr                   71381 samples [usec] 1 7252 102707 8835364
";

/// Answer of `mmpmon` to `fs_io_s` and `ver`.
pub(super) const MMPMON: &str = "\
_fs_io_s_ _n_ 10.22.0.106 _nn_ node7 _rc_ 0 _t_ 1579358234 _tu_ 53212 _cl_ gpfs.site _fs_ scratch _d_ 48 _br_ 205607400434 _bw_ 74839282351 _oc_ 2377656 _cc_ 2201576 _rdc_ 59420404 _wc_ 18874626 _dir_ 40971 _iu_ 544768
_ver_ _n_ 10.22.0.106 _nn_ node7 _v_ 3 _lv_ 5 _vt_ 0
";

/// A program in place of `mmpmon`.
pub(super) const MMPMON_PROGRAM: &str = "\
#!/bin/sh
answer=$(cat \"${0%/*}/answer\")
while read -r request; do case $request in ver) printf '%s\\n' \"$answer\";; esac; done
";

/// Interfaces of a client of BeeGFS.
pub(super) const BEEGFS_CLIENT: &str = "\
ClientID: 4F34-5DE9100E-node7
Interfaces:
+ ib0[ip addr: 10.1.2.3; type: RDMA]
";

/// A program in place of `beegfs-ctl`, which answers for storage and metadata servers alike.
pub(super) const BEEGFS_PROGRAM: &str = "\
#!/bin/sh
echo '10.1.2.3        61957 [sum]  18048 [statfs]  0 [close]  0 [fsync]  22385 [ops-rd]  3.28771e+08 [B-rd]  21504 [ops-wr]  8.80804e+07 [B-wr]'
echo '10.1.2.30       42 [sum]  40 [statfs]  0 [close]  0 [fsync]  0 [ops-rd]  0 [B-rd]  2 [ops-wr]  4096 [B-wr]'
";

/// Events that resctrl counts, which are also the names of files.
pub(super) const MON_FEATURES: &str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";

/// Zones of powercap that count energy, of two packages.
pub(super) const ZONES: [(&str, &str); 4] = [
    ("intel-rapl:0", "package-0"),
    ("intel-rapl:0:0", "dram"),
    ("intel-rapl:1", "package-1"),
    ("intel-rapl:1:0", "dram"),
];

/// Text of `/proc/stat` of a machine with this many CPUs, made of that of another one.
pub(super) fn stat(text: &str, cpus: usize) -> String {
    let is_of_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let one =
        text.lines().find(is_of_cpu).and_then(|line| line.split_once(' ')).map_or("", |(_, counts)| counts);
    let all = text.lines().take(1).map(str::to_owned);
    let each = (0..cpus).map(|cpu| format!("cpu{cpu} {one}"));
    let rest = text.lines().skip(1).filter(|line| !is_of_cpu(line)).map(str::to_owned);
    all.chain(each).chain(rest).map(|line| line + "\n").collect()
}

/// A table of an MI200: revision 1.3 of amdgpu's `gpu_metrics`.
pub(super) const GPU_METRICS: [u8; 120] = {
    let mut table = [0; 120];
    (table[0], table[2], table[3], table[26]) = (120, 1, 3, 1);
    table
};

/// Statistics of jobs on a target of a server of Lustre 2.12.
pub(super) fn job_stats(jobs: usize) -> String {
    "job_stats:\n".to_owned() + &(1..=jobs).map(|id| {
        format!(
            "- job_id:          {id}\n  snapshot_time:   1537070542\n  \
             read_bytes:      {{ samples:         256, unit: bytes, min: 4194304, max: 4194304, sum:      1073741824 }}\n  \
             write_bytes:     {{ samples:           0, unit: bytes, min:       0, max:       0, sum:               0 }}\n  \
             getattr:         {{ samples:           0, unit:  reqs }}\n  \
             setattr:         {{ samples:           2, unit:  reqs }}\n  \
             punch:           {{ samples:           3, unit:  reqs }}\n"
        )
    }).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_line_for_each_cpu() {
        let text = "cpu  1 2\ncpu0 3 4\ncpu1 5 6\nintr 7\n";
        assert_eq!(stat(text, 3), "cpu  1 2\ncpu0 3 4\ncpu1 3 4\ncpu2 3 4\nintr 7\n");
    }
}
