# services.polymeter-agent: the node agent.
{
  config,
  lib,
  pkgs,
  ...
}:

let
  cfg = config.services.polymeter-agent;
  file = import ./file.nix { inherit lib pkgs; };
  program = "${cfg.package}/bin/polymeter-agent";
  # What sampling the jobs of others takes, and no more; behind each stands what is missing without it.
  capabilities = [
    # perf events on cgroups of other users, with the kernel's part: no `perf.*` at all.
    "CAP_PERFMON"
    # SCHED_FIFO for the sampling thread: short deadlines missed on a busy node.
    "CAP_SYS_NICE"
    # With both: /proc/PID/io of other users' processes. With the second alone: the ids of tracepoints.
    "CAP_SYS_PTRACE"
    "CAP_DAC_READ_SEARCH"
  ];
  # What an agent does of which nothing else is said.
  example = lib.importTOML ../../deploy/agent.toml;
in
{
  options.services.polymeter-agent = {
    enable = lib.mkEnableOption "Polymeter's agent, which samples the jobs of this node";

    package = lib.mkOption {
      type = lib.types.package;
      description = "The package that has `bin/polymeter-agent`.";
    };

    checkConfig = lib.mkOption {
      type = lib.types.bool;
      default = true;
      description = "Check the configuration with the agent while the system is built.";
    };

    settings = lib.mkOption {
      type = lib.types.submodule {
        freeformType = file.type;
        options = import ./agent-settings.nix { inherit lib; };
      };
      default = { };
      example = {
        collector = "tcp://collector.example.org:7717";
        baseline."cpu.usage" = "100ms";
        baseline."node.vm.pgfault" = "1s";
      };
      description = ''
        What stands in /etc/polymeter/agent.toml. What is not said there is the agent's own default. `baseline` has the
        example's standing plan, of which single metrics can be said otherwise, and `jobs` the example's patterns.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    services.polymeter-agent.settings = {
      jobs = lib.mkDefault example.jobs;
      baseline = lib.mapAttrs (_: lib.mkDefault) example.baseline;
    };

    # Under /etc, where a change is a reload: agents go on with the session, the jobs and the leases that they have.
    environment.etc."polymeter/agent.toml".source = file.make {
      name = "agent.toml";
      inherit (cfg) settings;
      inherit program;
      check = cfg.checkConfig;
      keyless = removeAttrs cfg.settings [
        "key"
        "collector_key"
      ];
    };

    users.users.polymeter-agent = {
      isSystemUser = true;
      group = "polymeter-agent";
    };
    users.groups.polymeter-agent = { };

    systemd.services.polymeter-agent = {
      description = "Polymeter's agent";
      wantedBy = [ "multi-user.target" ];
      # The collector may come later: frames wait in the outbox.
      after = [ "network.target" ];
      reloadTriggers = [ config.environment.etc."polymeter/agent.toml".source ];
      serviceConfig = import ./hardening.nix // {
        ExecStart = "${program} --config /etc/polymeter/agent.toml";
        ExecReload = "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
        User = "polymeter-agent";
        Group = "polymeter-agent";
        RuntimeDirectory = "polymeter";
        # For `spool`.
        StateDirectory = "polymeter-agent";
        # One descriptor for every file, perf event and CPU.
        LimitNOFILE = 1048576;
        AmbientCapabilities = capabilities;
        CapabilityBoundingSet = capabilities;
        SystemCallFilter = [
          "@system-service"
          "perf_event_open"
        ];
        # Not PrivateNetwork: node.network.* would be of an empty one. Not ProtectProc and not PrivateUsers: processes of
        # jobs would not be seen. Not RestrictRealtime: the sampling thread is one.
      };
    };
  };
}
