# The keys of collector.toml. `make check-nix` holds this list against those that the program knows.
{ lib }:

let
  inherit (lib) types;
  inherit (import ./types.nix { inherit lib; })
    absolutePath
    endpoint
    optional
    pathOrOff
    period
    reach
    ;
in
{
  listen = optional endpoint "tcp://127.0.0.1:7717" "Where agents connect.";
  key =
    optional absolutePath "/etc/polymeter/collector.key"
      "The collector's own keys, made by `polymeter keygen`; a path outside of the store, of the user polymeter, mode 0400.";
  authorised_agents =
    optional absolutePath "/etc/polymeter/agents.d"
      "The directory with a file NODE.pub for each node whose agent may connect.";
  bind_node_to_key =
    optional types.bool true
      "Whether an agent may send only for the node that its .pub file is named after.";
  insecure = optional types.bool false "Whether other machines may connect without keys.";
  metrics =
    optional (types.strMatching ".+:[0-9]+") "127.0.0.1:9717"
      "Where the collector's own metrics are served for Prometheus.";
  store =
    optional types.str "host=/run/postgresql dbname=polymeter user=polymeter"
      "Where the samples go: sqlite:PATH, postgres://USER@HOST/DATABASE, or words as libpq reads them.";
  timescaledb = optional (types.enum [
    "auto"
    "off"
    "require"
  ]) "auto" "Whether TimescaleDB is used where the server has it.";
  writers = optional (types.ints.between 1 64) 2 "Connections that write side by side.";
  silent_after = optional reach "5min" "How long nothing may be heard of an agent until its session and the jobs that it followed count as ended.";
  commit_interval = optional period "1s" "How long samples wait for others, to be committed with them.";
  commit_rows =
    optional (types.ints.between 1 10000000) 50000
      "How many samples are committed together at most.";
  clock = {
    ahead = optional reach "1d" "How far in the future samples may be dated.";
    behind = optional reach "366d" "How far in the past samples may be dated.";
    beyond = optional (types.enum [
      "refuse"
      "quarantine"
    ]) "refuse" "What becomes of others: refused, or stored in the table samples_quarantine.";
  };
  control_socket =
    optional pathOrOff "/run/polymeter-collector/control.sock"
      "A Unix socket at which users of this machine ask for changes on all nodes of their jobs, or \"off\".";
  control_requests =
    optional pathOrOff "/var/lib/polymeter-collector/requests.json"
      "A file in which requests that agents have not heard outlive the collector, or \"off\"; below /var/lib/polymeter-collector, where alone the collector may write.";
  scheduler_user =
    optional types.str "slurm"
      "The user who may tell how jobs ended, beside root: the one as whom the scheduler's controller runs.";
  auth = optional (types.enum [
    "none"
    "munge"
  ]) "munge" "How users of other machines are known.";
  control =
    optional (types.strMatching "tcp://.+:[0-9]+") "tcp://192.0.2.1:7718"
      "Where users ask from other machines; needs auth = \"munge\".";
  unmunge =
    optional absolutePath "/run/current-system/sw/bin/unmunge"
      "The command that decodes MUNGE credentials; that of nixpkgs if nothing is said.";
  munge_socket =
    optional absolutePath "/run/munge/munge.socket.2"
      "The socket of munged, where it is not the usual one.";
}
