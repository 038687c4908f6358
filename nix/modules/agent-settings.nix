# The keys of agent.toml. `make check-nix` compares this list with the keys that the program knows.
{ lib }:

let
  inherit (lib) mkOption types;
  inherit (import ./types.nix { inherit lib; })
    absolutePath
    endpoint
    oneOrMore
    logging
    optional
    pathOrOff
    period
    periodOrOff
    size
    ;
in
logging
// {
  node = optional types.str "node17" "The node's name in the data; without it the host name.";
  cluster =
    optional types.str "lab"
      "The cluster of jobs whose scheduler scripts do not name one.";
  collector = optional (oneOrMore endpoint) "tcp://collector.example.org:7717" "The collector's endpoint, or a list of those of several collectors with the same store.";
  collector_order = optional (types.enum [
    "listed"
    "spread"
  ]) "listed" "The order in which collectors are tried: that of the list, or one of the node's own.";
  collector_return =
    optional periodOrOff "10min"
      "The time after which the agent tries to return to its first collector, or \"off\".";
  key =
    optional absolutePath "/etc/polymeter/node17.key"
      "The agent's key file, made by `polymeter keygen`; a path outside of the Nix store, owned by root with mode 0400.";
  collector_key =
    optional (oneOrMore types.str) "/etc/polymeter/collector.pub"
      "The collector's public key, or a file that contains it; or a list of one for each collector. Required with `key`.";
  root = optional absolutePath "/" "The directory that contains /sys and /proc.";
  flush_interval = optional period "1s" "The time between two transmissions.";
  outbox_bytes = optional size "64MiB" "The memory for samples while the collector is unreachable.";
  keep_acknowledged = optional (types.either (types.enum [ "off" ]) size) "1MiB" "The memory for samples that were acknowledged and may be missing after a failover of the database, or \"off\".";
  spool =
    optional absolutePath "/var/lib/polymeter-agent/spool"
      "The directory for samples that exceed the outbox; below /var/lib/polymeter-agent, the only place where the agent may write.";
  spool_bytes = optional size "1GiB" "The size of the spool.";
  realtime_priority =
    optional (types.ints.between 0 50) 10
      "The SCHED_FIFO priority of the sampler and of the thread that watches for job exits; 0 for the ordinary scheduling policy.";
  perf_fd_limit =
    optional (types.ints.between 0 1000000) 4096
      "The most file descriptors that the perf events of one job may use.";
  busiest_processes =
    optional (types.ints.between 0 64) 5
      "The most processes of one job that have series of their own at a time (the metrics busiest.*).";
  ebpf =
    optional types.bool true
      "Permit eBPF programs in the kernel, which count network.*, runqueue.wait.* and vfs.* of jobs.";
  control_socket = optional pathOrOff "/run/polymeter/agent.sock" "The path of the control socket, or \"off\".";
  remote_control =
    optional types.bool true
      "Answer requests that users on other machines send through the collector.";
  rescan_interval = optional period "1s" "The time between two checks for changes that the kernel did not announce. While it announces new cgroups (inotify), every tenth check searches for jobs, at least every 10 s; else every check does.";
  administrators = optional (types.listOf types.str) [
    "alice"
    "@hpc-admin"
  ] "The users, and groups behind an @, that may do everything on the control socket, besides root.";
  job_visibility = optional (types.enum [
    "own"
    "all"
  ]) "own" "The jobs that ordinary users can see.";

  jobs = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "slurm*/uid_{uid}/job_{job}" ];
    description = "The cgroups of jobs, below the mount point of any cgroup hierarchy.";
  };

  baseline = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "100ms";
      "io.*" = "off";
    };
    description = "The baseline: the metrics that are sampled, and their periods.";
  };

  steps = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "5s";
    };
    description = "The baseline of each step of every job.";
  };

  tasks = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "5s";
    };
    description = "The baseline of each task of every step.";
  };

  limits = {
    shortest_period = optional period "1ms" "The shortest period that users may request.";
    shortest_periods = mkOption {
      type = types.attrsOf periodOrOff;
      default = { };
      example = {
        "perf.*" = "10ms";
      };
      description = "The shortest periods of metrics for which `shortest_period` does not apply.";
    };
    longest_lease = optional period "1h" "The longest duration of a lease.";
    samples_per_second = optional types.ints.positive 200000 "The samples per second of one job.";
    job_cpu_percent = optional (types.ints.between 1 100) 5 "The percentage of one CPU for one job.";
    node_cpu_percent = optional (types.ints.between 1 100) 20 "The percentage of one CPU for everything that is sampled.";
  };
}
