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
  # The capabilities that sampling other users' jobs requires. The comment above each states its use and what is missing
  # without it.
  capabilities = [
    # Perf events on other users' cgroups, including kernel events. Without it there is no `perf.*` metric.
    "CAP_PERFMON"
    # SCHED_FIFO for the sampling thread. Without it a busy node misses short deadlines.
    "CAP_SYS_NICE"
    # Both: /proc/PID/io of other users' processes. The second alone: the ids of tracepoints.
    "CAP_SYS_PTRACE"
    "CAP_DAC_READ_SEARCH"
  ];
  # The rights that metrics beyond the default plan need, as the drop-ins in deploy/systemd/drop-ins grant them. The AF_NETLINK of
  # taskstats is among the defaults of hardening.nix.
  rights = {
    taskstats.capabilities = [ "CAP_NET_ADMIN" ];
    ebpf = {
      capabilities = [
        "CAP_BPF"
        "CAP_NET_ADMIN"
      ];
      systemCalls = [ "bpf" ];
      serviceConfig.LimitMEMLOCK = "infinity";
    };
    root-files.capabilities = [ "CAP_DAC_READ_SEARCH" ];
    drm.capabilities = [ "CAP_DAC_READ_SEARCH" ];
    ipmi = {
      capabilities = [ "CAP_DAC_OVERRIDE" ];
      devices = [ "char-ipmidev rw" ];
    };
    root.serviceConfig = {
      User = "root";
      Group = "root";
      # It makes /sys read-only, and with it resctrl.
      ProtectKernelTunables = false;
    };
    gpfs = {
      devices = [ "/dev/ss0 rw" ];
      serviceConfig = {
        User = "root";
        Group = "root";
      };
    };
  };
  granted = map (name: rights.${name}) cfg.rights;
  # Concatenates a list of all granted rights.
  ofRights = list: lib.unique (lib.concatMap (right: right.${list} or [ ]) granted);
  # The default jobs and baseline.
  example = lib.importTOML ../../deploy/agent.toml;
in
{
  options.services.polymeter-agent = {
    enable = lib.mkEnableOption "Polymeter's agent, which samples the jobs of this node";

    inherit (import ./program.nix { inherit lib; } "polymeter-agent") package checkConfig;

    rights = lib.mkOption {
      type = lib.types.listOf (lib.types.enum (lib.attrNames rights));
      default = [ ];
      example = [
        "taskstats"
        "ipmi"
      ];
      description = ''
        Rights beyond those of the default plan: `taskstats` for `exited.*`; `ebpf` for `network.*`, with
        `settings.ebpf = true`; `root-files` for files that only root may read (Lustre and LNet in debugfs, energy by powercap); `drm` for
        `gpu.drm.*`; `ipmi` for `node.ipmi.power`; `root` for `resctrl.*` and `node.beegfs.*`; `gpfs` for `node.gpfs.*`. With the last two the agent runs as root.
      '';
    };

    settings = lib.mkOption {
      type = lib.types.submodule {
        freeformType = file.type;
        options = import ./settings.nix { inherit lib; } "agent";
      };
      default = { };
      example = {
        collector = "tcp://collector.example.org:7717";
        baseline."cpu.usage" = "100ms";
        baseline."node.vm.pgfault" = "1s";
      };
      description = ''
        The contents of /etc/polymeter/agent.toml. Keys that are not set have the agent's own default. `baseline` has the
        example's standing plan, of which single metrics can be said otherwise, and `jobs` the example's patterns. `key` is a path
        outside of the Nix store, owned by root with mode 0400; `spool` lies below /var/lib/polymeter-agent, the only place where
        the agent may write.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    services.polymeter-agent.settings = {
      jobs = lib.mkDefault example.jobs;
      baseline = lib.mapAttrs (_: lib.mkDefault) example.baseline;
    };

    # Under /etc, so that a change is a reload: the agent keeps its session, jobs and leases.
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
      # The collector may start later: frames wait in the outbox.
      after = [ "network.target" ];
      reloadTriggers = [ config.environment.etc."polymeter/agent.toml".source ];
      serviceConfig = import ./hardening.nix // {
        ExecStart = "${program} --config /etc/polymeter/agent.toml";
        Type = "notify";
        WatchdogSec = "60s";
        ExecReload = "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
        User = "polymeter-agent";
        Group = "polymeter-agent";
        RuntimeDirectory = "polymeter";
        # The directory of the spool.
        StateDirectory = "polymeter-agent";
        # One descriptor per file, perf event and CPU.
        LimitNOFILE = 1048576;
        AmbientCapabilities = lib.unique (capabilities ++ ofRights "capabilities");
        CapabilityBoundingSet = lib.unique (capabilities ++ ofRights "capabilities");
        SystemCallFilter = [
          "@system-service"
          "perf_event_open"
        ]
        ++ ofRights "systemCalls";
        # The GPUs, which all users may use, and no other device but those like /dev/null.
        DevicePolicy = "closed";
        DeviceAllow = [
          "char-nvidia rw"
          "char-nvidia-frontend rw"
          "char-nvidiactl rw"
          "char-nvidia-uvm rw"
          "char-nvidia-caps rw"
        ]
        ++ ofRights "devices";
        # PrivateNetwork would hide the network devices of node.network.*. ProtectProc and PrivateUsers would hide the
        # processes of jobs. RestrictRealtime would forbid the priority of the sampling thread.
      }
      // lib.foldl' (all: right: all // right.serviceConfig or { }) { } granted;
    };
  };
}
