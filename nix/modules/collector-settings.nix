# The keys of collector.toml. `make check-nix` compares this list with the keys that the program knows.
{ lib }:

let
  inherit (lib) types;
  inherit (import ./types.nix { inherit lib; })
    absolutePath
    endpoint
    keep
    logging
    optional
    pathOrOff
    period
    reach
    size
    ;
in
logging
// {
  listen = optional endpoint "tcp://127.0.0.1:7717" "The endpoint for agents.";
  key =
    optional absolutePath "/etc/polymeter/collector.key"
      "The collector's key file, made by `polymeter keygen`; a path outside of the Nix store, owned by the user polymeter with mode 0400.";
  authorised_agents =
    optional absolutePath "/etc/polymeter/agents.d"
      "The directory that contains a file NODE.pub for each node whose agent may connect.";
  bind_node_to_key =
    optional types.bool true
      "Accept from an agent only the data of the node that its .pub file is named after.";
  insecure = optional types.bool false "Let other machines connect without keys.";
  metrics_listen =
    optional (types.strMatching ".+:[0-9]+") "127.0.0.1:9717"
      "The address of the collector's own metrics for Prometheus.";
  store =
    optional types.str "host=/run/postgresql dbname=polymeter user=polymeter"
      "The store: sqlite:PATH, postgres://USER@HOST/DATABASE, or keywords as libpq reads them.";
  timescaledb = optional (types.enum [
    "auto"
    "off"
    "require"
  ]) "auto" "Use TimescaleDB if the PostgreSQL server has it.";
  citus = optional (types.enum [
    "auto"
    "off"
    "require"
  ]) "auto" "Distribute the samples over the servers of Citus if the database has its extension.";
  sinks = optional (types.listOf types.str) [ "jsonl:/var/log/polymeter/samples.jsonl" ]
    "Further outputs of stored rows: jsonl:PATH for JSON lines to a file, a FIFO or a Unix socket.";
  writers = optional (types.ints.between 1 64) 2 "The number of connections that write in parallel.";
  session_timeout = optional reach "5min" "The silence after which an agent's session and its jobs count as ended.";
  commit_interval = optional period "1s" "The longest time that samples wait for a commit.";
  commit_rows =
    optional (types.ints.between 1 10000000) 50000
      "The most samples of one commit.";
  clock = {
    max_age = optional reach "366d" "The greatest age of a sample on arrival.";
    max_skew = optional reach "1d" "The farthest that a sample may lie in the future on arrival.";
    out_of_range = optional (types.enum [
      "reject"
      "quarantine"
    ]) "reject" "The treatment of other samples: rejected, or stored in the table samples_quarantine.";
  };
  retention = {
    raw = optional keep "90d" "The time for which samples are kept.";
    "10s" = optional keep "90d" "The time for which summaries of 10 s are kept.";
    "1min" = optional keep "1y" "The time for which summaries of a minute are kept.";
    "1h" = optional keep "forever" "The time for which summaries of an hour are kept.";
  };
  remote_write = {
    url = optional (types.strMatching "https?://.+") "http://localhost:9090/api/v1/write" "The receiver of samples by remote_write; without it nothing is sent.";
    ca_file = optional absolutePath "/etc/polymeter/ca.pem" "The root certificates for https.";
    protocol = optional (types.enum [
      "auto"
      "1.0"
      "2.0"
    ]) "auto" "The version of the protocol.";
    metrics = optional (types.listOf types.str) [ "*" ] "Globs of the metrics that are sent.";
    jobs = optional (types.listOf types.str) [ "*" ] "Globs of the ids of jobs whose series are sent.";
    nodes = optional (types.listOf types.str) [ "*" ] "Globs of the nodes whose series are sent.";
    labels = optional (types.listOf types.str) [ "site=here" ] "Labels that each series gets.";
    username = optional types.str "polymeter" "The name for basic authentication.";
    password_file =
      optional absolutePath "/etc/polymeter/remote-write.password"
        "The file with the password; a path outside of the Nix store.";
    bearer_token_file =
      optional absolutePath "/etc/polymeter/remote-write.token"
        "The file with a bearer token; a path outside of the Nix store.";
    headers = optional (types.listOf types.str) [ "X-Scope-OrgID: hpc" ] "Further headers.";
    headers_file =
      optional absolutePath "/etc/polymeter/remote-write.headers"
        "The file with headers that are secrets; a path outside of the Nix store.";
    spool =
      optional absolutePath "/var/lib/polymeter/remote-write"
        "The directory of samples that were not sent.";
    spool_bytes = optional size "8GiB" "The size of the spool; the oldest samples beyond it are dropped.";
    shards = optional (types.ints.between 1 64) 4 "The number of connections.";
    batch_samples = optional (types.ints.between 1 50000) 2000 "The most samples of a request.";
    batch_wait = optional reach "5s" "The longest time for which samples wait for others.";
    timeout = optional reach "30s" "The timeout of a request.";
    resend_window =
      optional reach "1min"
        "The time for which accepted samples are kept, to be sent again after the receiver could not be reached; without it none are kept.";
  };
  job_end = {
    command = optional (types.listOf types.str) [
      "/run/current-system/sw/bin/at-job-end"
    ] "The absolute path of the program that runs at the end of each job, and its arguments; without it nothing runs.";
    timeout = optional reach "60s" "The time after which the command is killed.";
    concurrent = optional (types.ints.between 1 64) 2 "The number of commands that run at the same time.";
    delay = optional reach "30s" "The time between the end of a job and its command.";
    queue = optional (types.ints.between 1 1000000) 10000 "The number of ends that may wait.";
    advice =
      optional absolutePath "/etc/polymeter/advice.d"
        "The directory of the site's rules for findings.";
  };
  api = {
    listen = optional types.str "/run/polymeter-collector/api.sock" "The Unix socket of the HTTP API, or ADDRESS:PORT, or \"off\".";
    insecure = optional types.bool false "Let other machines connect to the HTTP API without encryption.";
    server_names = optional (types.listOf types.str) [
      "meter.example.org"
    ] "The names by which browsers may address the API, besides addresses and localhost.";
    trusted_proxies = optional (types.listOf types.str) [
      "user:nginx"
    ] "The proxies that name users: addresses, networks, or user:NAME.";
    user_header = optional types.str "X-Remote-User" "The header in which they do.";
    readers = optional (types.ints.between 1 64) 4 "The number of connections to the store.";
    query_timeout = optional reach "60s" "The time for reading one answer.";
    user_requests = optional (types.ints.between 1 10000) 8 "The requests of one user in progress.";
    user_requests_per_second =
      optional (types.ints.between 1 10000) 50
        "The requests of one user a second.";
    user_bytes_per_second =
      optional (types.ints.between 1000 1000000000000) 67108864
        "The bytes that one user may read a second.";
    streams = optional (types.ints.between 1 400) 256 "The streams of live values of all users.";
    user_streams = optional (types.ints.between 1 400) 16 "The streams of live values of one user.";
  };
  control_socket =
    optional pathOrOff "/run/polymeter-collector/control.sock"
      "The Unix socket for users of this machine who change the sampling of their jobs on all nodes, or \"off\".";
  scheduler_user =
    optional types.str "slurm"
      "The user that may report how jobs ended, besides root: the user of the scheduler's controller.";
  administrators = optional (types.listOf types.str) [
    "alice"
    "@hpc-admin"
  ] "The users, and groups behind an @, that may read the reports of all jobs, besides root.";
  auth = optional (types.enum [
    "none"
    "munge"
  ]) "munge" "The authentication of users of other machines.";
  control_listen =
    optional (types.strMatching "tcp://.+:[0-9]+") "tcp://192.0.2.1:7718"
      "The address for users of other machines; requires auth = \"munge\".";
  unmunge_path =
    optional absolutePath "/run/current-system/sw/bin/unmunge"
      "The command that decodes MUNGE credentials; by default that of nixpkgs.";
  munge_socket =
    optional absolutePath "/run/munge/munge.socket.2"
      "The socket of munged, if it is not the default.";
}
