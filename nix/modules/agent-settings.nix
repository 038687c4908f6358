# The keys of agent.toml. `make check-nix` holds this list against those that the program knows.
{ lib }:

let
  inherit (lib) mkOption types;
  inherit (import ./types.nix { inherit lib; })
    absolutePath
    endpoint
    optional
    pathOrOff
    period
    periodOrOff
    size
    ;
in
{
  node = optional types.str "node17" "The node's name in the data; without it the host's name.";
  cluster =
    optional types.str "lab"
      "The cluster whose jobs run here, where the scheduler's prolog does not say it.";
  collector = optional endpoint "tcp://collector.example.org:7717" "Where the samples go.";
  key =
    optional absolutePath "/etc/polymeter/node17.key"
      "The agent's own keys, made by `polymeter keygen`; a path outside of the store. Root's, with mode 0400, will do.";
  collector_key =
    optional types.str "/etc/polymeter/collector.pub"
      "The collector's public key, or the file that holds it; wanted with `key`.";
  root = optional absolutePath "/" "The directory below which /sys and /proc are.";
  flush = optional period "1s" "How often the samples are sent.";
  outbox = optional size "64MiB" "How much may wait while the collector cannot be reached.";
  spool =
    optional absolutePath "/var/lib/polymeter-agent/spool"
      "Where samples wait that memory has no room for; below /var/lib/polymeter-agent, where alone the agent may write.";
  spool_bytes = optional size "1GiB" "How much may wait there.";
  realtime_priority =
    optional (types.ints.between 0 50) 10
      "The priority under SCHED_FIFO of the sampling thread and of the one that sees jobs end; 0 leaves them under the ordinary policy.";
  perf_descriptors =
    optional (types.ints.between 0 1000000) 4096
      "How many descriptors the perf events of one job may take.";
  socket = optional pathOrOff "/run/polymeter/agent.sock" "The control socket, or \"off\".";
  remote_control =
    optional types.bool true
      "Whether the collector may pass on what users ask on other machines.";
  rescan = optional period "1s" "How often jobs are looked for even when the kernel reports nothing new.";
  administrators = optional (types.listOf types.str) [
    "alice"
    "@hpc-admin"
  ] "Who may do all over the control socket, beside root: users, and groups behind an @.";
  look = optional (types.enum [
    "own"
    "all"
  ]) "own" "Whose jobs ordinary users may look at.";

  jobs = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "slurm*/uid_{uid}/job_{job}" ];
    description = "Where the cgroups of jobs are, below the mount of any cgroup hierarchy.";
  };

  baseline = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "100ms";
      "io.*" = "off";
    };
    description = "The standing plan: which metrics are sampled, at which period.";
  };

  steps = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "5s";
    };
    description = "The standing plan for each step of every job.";
  };

  tasks = mkOption {
    type = types.attrsOf periodOrOff;
    default = { };
    example = {
      "cpu.usage" = "5s";
    };
    description = "The standing plan for each task of every step.";
  };

  limits = {
    shortest_period = optional period "1ms" "The shortest period that users may ask for.";
    shortest_periods = mkOption {
      type = types.attrsOf periodOrOff;
      default = { };
      example = {
        "perf.*" = "10ms";
      };
      description = "The shortest periods of some metrics, where they are to differ.";
    };
    longest_lease = optional period "1h" "The longest time for which users may ask.";
    samples_per_second = optional types.ints.positive 200000 "Samples per second of one job.";
    job_cpu_percent = optional (types.ints.between 1 100) 5 "Percent of one CPU for one job.";
    node_cpu_percent = optional (types.ints.between 1 100) 20 "Percent of one CPU for all that is sampled.";
  };
}
