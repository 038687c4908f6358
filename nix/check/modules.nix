# The modules with nixpkgs' lib alone: what the rest of NixOS would give is only declared here, and what would be built is
# written at once. Ends in the files and the units of the machines of ../tests/machines.nix.
{ nixpkgsLib }:

let
  lib = import nixpkgsLib;
  machines = import ../tests/machines.nix;

  # JSON's strings, numbers and lists are TOML's, too; tables stand in line.
  toml =
    value:
    if lib.isAttrs value then
      "{ ${
        lib.concatStringsSep ", " (lib.mapAttrsToList (key: value: "${builtins.toJSON key} = ${toml value}") value)
      } }"
    else
      builtins.toJSON value;
  document =
    settings:
    lib.concatStrings (lib.mapAttrsToList (key: value: "${builtins.toJSON key} = ${toml value}\n") settings);

  pkgs = {
    coreutils = "/coreutils";
    formats.toml = _: {
      type = lib.types.attrsOf lib.types.anything;
      generate = name: settings: builtins.toFile name (document settings);
    };
    # What would be run is only written down: the caller gives the files to the programs.
    stdenv.buildPlatform.canExecute = _: true;
    runCommand = name: _: script: builtins.toFile name script;
    stdenv.hostPlatform.system = "x86_64-linux";
  };

  # Enough of a derivation to be taken for one.
  package = {
    type = "derivation";
    name = "polymeter";
    outPath = "/package";
  };

  anything =
    default:
    lib.mkOption {
      type = lib.types.anything;
      inherit default;
    };
  listOfPorts = lib.mkOption {
    type = lib.types.listOf lib.types.port;
    default = [ ];
  };
  attributes = lib.mkOption {
    type = lib.types.attrsOf lib.types.anything;
    default = { };
  };
  # A unit merges as in NixOS where our module says a list twice.
  unit = lib.types.submodule {
    freeformType = lib.types.attrsOf lib.types.anything;
    options = lib.genAttrs [ "after" "wants" "requires" "wantedBy" ] (
      _:
      lib.mkOption {
        type = lib.types.listOf lib.types.str;
        default = [ ];
      }
    );
  };
  nixos = {
    options = {
      environment.etc = attributes;
      networking.firewall.allowedTCPPorts = listOfPorts;
      services.postgresql = anything { };
      systemd.services = lib.mkOption {
        type = lib.types.attrsOf unit;
        default = { };
      };
      users.users = attributes;
      users.groups = attributes;
    };
    config.services.polymeter-agent.package = lib.mkDefault package;
    config.services.polymeter-collector.package = lib.mkDefault package;
  };

  evaluated =
    machine:
    (lib.evalModules {
      specialArgs = { inherit pkgs; };
      modules = [
        nixos
        ../modules/agent.nix
        ../modules/collector.nix
        machine
      ];
    }).config;

  agent = evaluated machines.agent;
  plain = evaluated { services.polymeter-agent.enable = true; };
  collector = evaluated machines.collector;
  idle = evaluated { };

  # What is refused where the system is built, and not only where the program starts.
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
      flush = "5 seconds";
    });
    "a type must be right" = refused (mistake {
      perf_descriptors = "many";
    });
    "only what differs from the standing plan has to be said" =
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
    "the collector waits for its database" =
      lib.elem "postgresql.target" collector.systemd.services.polymeter-collector.requires;
    "the server has TimescaleDB" =
      collector.services.postgresql.settings.shared_preload_libraries == [ "timescaledb" ];
    "no daemon is root" = lib.all (unit: unit.serviceConfig.User != "root") (
      lib.attrValues (agent.systemd.services // collector.systemd.services)
    );
  };
  wrong = lib.attrNames (lib.filterAttrs (_: holds: !holds) facts);
in
assert lib.assertMsg (wrong == [ ]) "does not hold: ${lib.concatStringsSep "; " wrong}";
{
  facts = lib.attrNames facts;
  # Scripts that check a file and put it in its place.
  scripts = [
    agent.environment.etc."polymeter/agent.toml".source
    plain.environment.etc."polymeter/agent.toml".source
    # The file that the unit's command line names.
    (lib.last (
      lib.splitString " " collector.systemd.services.polymeter-collector.serviceConfig.ExecStart
    ))
  ];
  units = agent.systemd.services // collector.systemd.services;
}
