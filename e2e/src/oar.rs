//! The script of a real OAR 2 that makes a job's cgroups on a node, run as the server has it run, and the cgroups that it makes.
//! They go with the test. OAR's own `clean` is never run: it ends all that a user runs and deletes what she has in /tmp.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::cgroup;

/// Names OAR's `job_resource_manager_cgroups.pl`. `make test-oar` takes it out of Debian's package.
const SCRIPT: &str = "POLYMETER_OAR_SCRIPT";

/// The hierarchies that it uses as it comes, and the one that an administrator may switch on.
const HIERARCHIES: [&str; 6] = ["cpuset", "cpu", "cpuacct", "devices", "freezer", "memory"];

const MEMORY_OFF: &str = "$Enable_mem_cg = \"NO\"";
const MEMORY_ON: &str = "$Enable_mem_cg = \"YES\"";

/// A user of every Debian, with the number that it has there.
pub const USER: (&str, i64) = ("games", 5);

/// What the script changes besides cgroups are links in /dev, and it wants a user `oar`: both are there in a mount namespace of
/// its own only. `oardodo` becomes root, which this is already.
const WITHIN: &str = r#"
set -e
here=$1
mkdir "$here/dev" "$here/bin"
touch "$here/dev/null"
mount --bind /dev/null "$here/dev/null"
mount --rbind "$here/dev" /dev
cp /etc/passwd "$here/passwd"
echo "oar:x:64010:64010::/:/bin/sh" >>"$here/passwd"
mount --bind "$here/passwd" /etc/passwd
printf '#!/bin/sh\nexec "$@"\n' >"$here/bin/oardodo"
chmod +x "$here/bin/oardodo"
PATH=$here/bin:$PATH HOME=$here TAKTUK_HOSTNAME=node exec perl "$2" init
"#;

fn script() -> Option<PathBuf> {
    std::env::var_os(SCRIPT).map(PathBuf::from)
}

/// Why there can be none here.
pub fn missing() -> Option<String> {
    let Some(script) = script() else { return Some(format!("`make test-oar` runs it: {SCRIPT} is not set")) };
    if !script.is_file() {
        return Some(format!("{}, which {SCRIPT} names, is missing", script.display()));
    }
    let in_use = HIERARCHIES.into_iter().filter_map(top).find(|top| top.exists());
    in_use.map(|top| format!("{} is somebody's already", top.display()))
}

fn top(hierarchy: &str) -> Option<PathBuf> {
    Some(cgroup::root(hierarchy)?.join("oar"))
}

/// A node of an OAR cluster.
pub struct Node {
    directory: TempDir,
}

impl Node {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Has OAR make the cgroups of a job and says where they are. The memory controller is as the script has it, which is
    /// off, or switched on as its head says.
    pub fn start_job(&self, job: &str, with_memory: bool) -> Vec<PathBuf> {
        let here = self.directory.path().join(job);
        fs::create_dir(&here).unwrap();
        let program = here.join("job_resource_manager_cgroups.pl");
        let mut text = fs::read_to_string(script().unwrap()).unwrap();
        if with_memory {
            assert!(text.contains(MEMORY_OFF), "OAR's script has another switch for memory");
            text = text.replace(MEMORY_OFF, MEMORY_ON);
        }
        fs::write(&program, text).unwrap();
        let name = format!("{}_{job}", USER.0);
        let mut init = Command::new("unshare");
        init.args(["--mount", "sh", "-c", WITHIN, "sh"]).arg(&here).arg(&program).stdin(Stdio::piped());
        let mut init = init.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        init.stdin.take().unwrap().write_all(told(job, &name, &here).as_bytes()).unwrap();
        let output = init.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let places = HIERARCHIES.into_iter().filter_map(top).map(|top| top.join(&name));
        places.filter(|place| place.exists()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for place in HIERARCHIES.into_iter().filter_map(top) {
            cgroup::remove(&place).ok();
        }
    }
}

/// What the server tells the script on stdin: a hash, as its head describes it.
fn told(job: &str, name: &str, here: &Path) -> String {
    format!(
        "{{ job_id => {job}, name => '{name}', cpuset_path => '/oar', nodes => {{ node => [ 0 ] }}, \
         ssh_keys => {{ public => {{ key => '' }}, private => {{ key => '' }} }}, oar_tmp_directory => '{here}', \
         user => '{user}', job_user => '{user}', types => {{}}, node_file_db_fields => 'network_address', \
         node_file_db_fields_distinct_values => 'resource_id', array_id => {job}, array_index => 1, \
         resources => [ {{ type => 'default', network_address => 'node', resource_id => 1 }} ], \
         stdout_file => '', stderr_file => '', launching_directory => '/', walltime_seconds => 3600, \
         walltime => '1:0:0', project => 'default', log_level => 2 }}",
        user = USER.0,
        here = here.display(),
    )
}
