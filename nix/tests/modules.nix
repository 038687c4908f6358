# Evaluates the machines of machines.nix with all of NixOS, and checks that the programs accept their configurations and
# systemd accepts their units.
{ pkgs, modules }:

let
  machines = import ./machines.nix;
  evaluated =
    machine:
    (pkgs.nixos {
      imports = [
        modules.default
        machine
      ];
      system.stateVersion = "26.05";
      fileSystems."/".device = "none";
      boot.loader.grub.enable = false;
    }).config;
  agent = evaluated machines.agent;
  collector = evaluated machines.collector;
in
pkgs.runCommand "polymeter-modules" { nativeBuildInputs = [ pkgs.systemd ]; } ''
  # To be there is enough: it was checked when it was built.
  test -s ${agent.environment.etc."polymeter/agent.toml".source}
  mkdir units
  cp ${agent.systemd.units."polymeter-agent.service".unit}/polymeter-agent.service units
  cp ${collector.systemd.units."polymeter-collector.service".unit}/polymeter-collector.service units
  grep -q CAP_PERFMON units/polymeter-agent.service
  grep -q postgresql.target units/polymeter-collector.service
  cp -r units $out
''
