# Two machines that set every typed option of both modules. `make check-nix` passes the resulting files to the programs.
{
  agent = {
    services.polymeter-agent = {
      enable = true;
      rights = [ "taskstats" ];
      settings = {
        node = "node17";
        cluster = "lab";
        collector = "tcp://192.0.2.1:7717";
        key = "/etc/polymeter/node17.key";
        collector_key = "/etc/polymeter/collector.pub";
        root = "/";
        flush_interval = "500ms";
        outbox_bytes = "16MiB";
        spool = "/var/lib/polymeter-agent/spool";
        spool_bytes = "256MiB";
        realtime_priority = 20;
        perf_fd_limit = 512;
        control_socket = "/run/polymeter/agent.sock";
        remote_control = false;
        rescan_interval = "2s";
        administrators = [
          "root"
          "@wheel"
        ];
        job_visibility = "all";
        log_level = "warn";
        log_format = "json";
        jobs = [ "jobs.slice/job-{job}.service" ];
        baseline = {
          "cpu.usage" = "100ms";
          "memory.limit" = "off";
        };
        steps."cpu.usage" = "5s";
        tasks."cpu.usage" = "5s";
        limits = {
          shortest_period = "10ms";
          shortest_periods."perf.*" = "100ms";
          longest_lease = "2h";
          samples_per_second = 50000;
          job_cpu_percent = 3;
          node_cpu_percent = 10;
        };
      };
    };
  };

  collector = {
    services.polymeter-collector = {
      enable = true;
      openFirewall = true;
      database.createLocally = true;
      settings = {
        listen = "tcp://192.0.2.1:7717";
        key = "/etc/polymeter/collector.key";
        authorised_agents = "/etc/polymeter/agents.d";
        bind_node_to_key = true;
        insecure = false;
        metrics_listen = "127.0.0.1:9717";
        writers = 4;
        commit_interval = "500ms";
        commit_rows = 20000;
        clock = {
          max_skew = "1h";
          max_age = "30d";
          out_of_range = "quarantine";
        };
        retention = {
          raw = "30d";
          "10s" = "60d";
          "1min" = "2y";
          "1h" = "forever";
        };
        control_socket = "/run/polymeter-collector/control.sock";
        auth = "munge";
        control_listen = "tcp://192.0.2.1:7718";
        # unmunge_path has its default, the path in nixpkgs.
        munge_socket = "/run/munge/munge.socket.2";
      };
    };
  };
}
