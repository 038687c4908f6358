# The apps of `nix run`, with all programs that they call pinned. Imported without callPackage, which would add `override` to
# the apps.
{
  pkgs,
  # The flake's packages for this system.
  packages,
  lockFile,
}:

let
  inherit (pkgs) lib;
  app = application: {
    type = "app";
    program = lib.getExe (pkgs.writeShellApplication application);
    inherit (application) meta;
  };
in
{
  demo = app {
    name = "polymeter-demo";
    meta.description = "Runs a collector, an agent and a real job, and prints the job's report";
    runtimeInputs = [
      pkgs.coreutils
      pkgs.gawk
      pkgs.gnugrep
      pkgs.gnused
    ];
    text = ''
      exec ${../deploy/demo}/run.sh ${packages.polymeter}/bin "''${1:-polymeter-demo}"
    '';
  };

  experiment = app {
    name = "polymeter-experiment";
    meta.description = "Runs an experiment that a file describes, or one of benches/ by its name, and seals its results";
    runtimeInputs = [
      pkgs.coreutils
      pkgs.git
      # The database server of `ingest` and `scale`, and `setpriv`, with which root starts it as another user.
      (pkgs.postgresql.withPackages (extensions: [ extensions.timescaledb ]))
      pkgs.util-linux
      # Load and peer of the experiments of papers. `prometheus-node-exporter` is Debian's name of the program.
      pkgs.wrk
      (pkgs.writeShellScriptBin "prometheus-node-exporter" ''
        exec ${pkgs.prometheus-node-exporter}/bin/node_exporter "$@"
      '')
      # The commands in the experiments' files.
      packages.npb
      pkgs.mpi
    ];
    text = ''
      export POLYMETER_EXPERIMENTS=${packages.experiments}/bin POLYMETER_LOCK_FILE=${lockFile}
    ''
    + builtins.readFile ./experiment.sh;
  };
}
