# Evaluates the modules with nixpkgs' lib and a minimal NixOS. The result contains the configuration files and units of the
# machines in ../tests/machines.nix.
{ nixpkgsLib }:

let
  nixpkgs = import ./nixpkgs.nix { inherit nixpkgsLib; } { };
  inherit (nixpkgs) lib;
  nixos = import ./nixos.nix { inherit lib; };
  machines = import ../tests/machines.nix;

  pkgs = nixpkgs // {
    coreutils = "/coreutils";
    # Records the script without running it: the caller runs it with the real programs.
    runCommand = name: _: script: builtins.toFile name script;
  };

  # A minimal attribute set that counts as a derivation.
  package = {
    type = "derivation";
    name = "polymeter";
    outPath = "/package";
  };

  evaluated =
    machine:
    nixos.evaluated pkgs [
      ../modules/agent.nix
      ../modules/collector.nix
      {
        services.polymeter-agent.package = lib.mkDefault package;
        services.polymeter-collector.package = lib.mkDefault package;
      }
      machine
    ];

  agent = evaluated machines.agent;
  plain = evaluated { services.polymeter-agent.enable = true; };
  collector = evaluated machines.collector;
  alone = evaluated {
    services.polymeter-collector = {
      enable = true;
      settings.listen = "tcp://192.0.2.1:7717";
    };
  };
  idle = evaluated { };
  privileged = evaluated {
    services.polymeter-agent = {
      enable = true;
      rights = [
        "taskstats"
        "ebpf"
        "root"
      ];
    };
  };

  # True if the module system rejects the settings, before the program checks them.
  refused =
    machine:
    !(builtins.tryEval (builtins.deepSeq (evaluated machine).services.polymeter-agent.settings true)).success;
  mistake = settings: {
    services.polymeter-agent = {
      enable = true;
      inherit settings;
    };
  };

  facts = {
    "a machine that enables nothing has no unit" = idle.systemd.services == { };
    "a period must be one" = refused (mistake {
      flush_interval = "5 seconds";
    });
    "a type must be right" = refused (mistake {
      perf_fd_limit = "many";
    });
    "only differences from the default plan are written" =
      let
        baseline = agent.services.polymeter-agent.settings.baseline;
        example = (lib.importTOML ../../deploy/agent.toml).baseline;
      in
      baseline."cpu.usage" == "100ms" && baseline."node.load1" == example."node.load1";
    "the firewall opens both ports" =
      collector.networking.firewall.allowedTCPPorts == [
        7717
        7718
      ];
    "the firewall is unchanged by default" =
      alone.networking.firewall.allowedTCPPorts == [ ];
    "a collector without a database has a file" =
      alone.services.postgresql == { } && lib.hasPrefix "sqlite:" alone.services.polymeter-collector.settings.store;
    "the collector waits for its database" =
      lib.elem "postgresql.target" collector.systemd.services.polymeter-collector.requires;
    "unmunge is found where NixOS has it" =
      lib.hasSuffix "-munge/bin/unmunge" collector.services.polymeter-collector.settings.unmunge_path;
    "the server has TimescaleDB" =
      collector.services.postgresql.settings.shared_preload_libraries == [ "timescaledb" ];
    "rights are granted once, beside those of the default plan" =
      let
        unit = privileged.systemd.services.polymeter-agent.serviceConfig;
      in
      lib.count (name: name == "CAP_NET_ADMIN") unit.AmbientCapabilities == 1
      && lib.elem "CAP_PERFMON" unit.CapabilityBoundingSet
      && lib.elem "bpf" unit.SystemCallFilter
      && unit.User == "root"
      && unit.LimitMEMLOCK == "infinity";
    "no daemon is root" = lib.all (unit: unit.serviceConfig.User != "root") (
      lib.attrValues (agent.systemd.services // collector.systemd.services)
    );
  };
  wrong = lib.attrNames (lib.filterAttrs (_: holds: !holds) facts);
in
assert lib.assertMsg (wrong == [ ]) "does not hold: ${lib.concatStringsSep "; " wrong}";
{
  facts = lib.attrNames facts;
  # The scripts that check a configuration file and install it. The collector's is the one in its unit's command line.
  scripts = [
    agent.environment.etc."polymeter/agent.toml".source
    plain.environment.etc."polymeter/agent.toml".source
  ]
  ++ map (
    machine: lib.last (lib.splitString " " machine.systemd.services.polymeter-collector.serviceConfig.ExecStart)
  ) [ collector alone ];
  units = agent.systemd.services // collector.systemd.services // {
    polymeter-privileged = privileged.systemd.services.polymeter-agent;
  };
}
