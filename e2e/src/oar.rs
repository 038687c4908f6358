//! Job cgroups made by the script of a real OAR 2, run as OAR's server runs it. They are removed when the
//! test ends. OAR's own `clean` is never run: it kills all processes of a user and deletes the user's files
//! in /tmp.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::cgroup;

/// Environment variable with the path of OAR's `job_resource_manager_cgroups.pl`. `make test-oar` extracts
/// the script from Debian's package.
const SCRIPT: &str = "POLYMETER_OAR_SCRIPT";

/// Hierarchies that the script uses by default, and `memory`, which an administrator may enable.
const HIERARCHIES: [&str; 6] = ["cpuset", "cpu", "cpuacct", "devices", "freezer", "memory"];

const MEMORY_OFF: &str = "$Enable_mem_cg = \"NO\"";
const MEMORY_ON: &str = "$Enable_mem_cg = \"YES\"";

/// A user of every Debian, with its uid.
pub const USER: (&str, i64) = ("games", 5);

/// A shell script that runs OAR's script in a private mount namespace. Besides cgroups, OAR's script changes
/// links in /dev and requires a user `oar`: both exist in that namespace only. `oardodo` normally becomes
/// root; here it runs its arguments, since the test runs as root.
const WITHIN: &str = r#"
set -e
directory=$1
mkdir "$directory/dev" "$directory/bin"
touch "$directory/dev/null"
mount --bind /dev/null "$directory/dev/null"
mount --rbind "$directory/dev" /dev
cp /etc/passwd "$directory/passwd"
echo "oar:x:64010:64010::/:/bin/sh" >>"$directory/passwd"
mount --bind "$directory/passwd" /etc/passwd
printf '#!/bin/sh\nexec "$@"\n' >"$directory/bin/oardodo"
chmod +x "$directory/bin/oardodo"
PATH=$directory/bin:$PATH HOME=$directory TAKTUK_HOSTNAME=node exec perl "$2" init
"#;

fn script() -> Option<PathBuf> {
    std::env::var_os(SCRIPT).map(PathBuf::from)
}

pub fn missing() -> Option<String> {
    let Some(script) = script() else { return Some(format!("`make test-oar` runs it: {SCRIPT} is not set")) };
    if !script.is_file() {
        return Some(format!("{}, which {SCRIPT} names, is missing", script.display()));
    }
    let in_use = HIERARCHIES.into_iter().filter_map(top).find(|top| top.exists());
    in_use.map(|top| format!("{} exists already", top.display()))
}

fn top(hierarchy: &str) -> Option<PathBuf> {
    Some(cgroup::root(hierarchy)?.join("oar"))
}

pub struct Node {
    directory: TempDir,
}

impl Node {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Creates the cgroups of a job with OAR's script and returns their paths. The memory controller is off
    /// by the script's default.
    pub fn start_job(&self, job: &str, with_memory: bool) -> Vec<PathBuf> {
        let directory = self.directory.path().join(job);
        fs::create_dir(&directory).unwrap();
        let program = directory.join("job_resource_manager_cgroups.pl");
        let mut text = fs::read_to_string(script().unwrap()).unwrap();
        if with_memory {
            assert!(text.contains(MEMORY_OFF), "OAR's script has another switch for memory");
            text = text.replace(MEMORY_OFF, MEMORY_ON);
        }
        fs::write(&program, text).unwrap();
        let name = format!("{}_{job}", USER.0);
        let mut init = Command::new("unshare");
        init.args(["--mount", "sh", "-c", WITHIN, "sh"]).arg(&directory).arg(&program).stdin(Stdio::piped());
        let mut init = init.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        init.stdin.take().unwrap().write_all(job_description(job, &name, &directory).as_bytes()).unwrap();
        let output = init.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let directories = HIERARCHIES.into_iter().filter_map(top).map(|top| top.join(&name));
        directories.filter(|directory| directory.exists()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for directory in HIERARCHIES.into_iter().filter_map(top) {
            cgroup::remove(&directory).ok();
        }
    }
}

/// Job description that the server sends to the script on stdin: a Perl hash.
fn job_description(job: &str, name: &str, directory: &Path) -> String {
    format!(
        "{{ job_id => {job}, name => '{name}', cpuset_path => '/oar', nodes => {{ node => [ 0 ] }}, \
         ssh_keys => {{ public => {{ key => '' }}, private => {{ key => '' }} }}, oar_tmp_directory => '{directory}', \
         user => '{user}', job_user => '{user}', types => {{}}, node_file_db_fields => 'network_address', \
         node_file_db_fields_distinct_values => 'resource_id', array_id => {job}, array_index => 1, \
         resources => [ {{ type => 'default', network_address => 'node', resource_id => 1 }} ], \
         stdout_file => '', stderr_file => '', launching_directory => '/', walltime_seconds => 3600, \
         walltime => '1:0:0', project => 'default', log_level => 2 }}",
        user = USER.0,
        directory = directory.display(),
    )
}
