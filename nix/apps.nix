# What `nix run` starts, with every program that it calls pinned.
{
  coreutils,
  gawk,
  git,
  gnugrep,
  gnused,
  lib,
  postgresql,
  writeShellApplication,
  polymeter,
  experiments,
  lockFile,
}:

let
  app = package: {
    type = "app";
    program = lib.getExe package;
    meta.description = package.meta.description;
  };
in
{
  demo = app (writeShellApplication {
    name = "polymeter-demo";
    meta.description = "Runs a collector, an agent and a real job, and prints the job's report";
    runtimeInputs = [
      coreutils
      gawk
      gnugrep
      gnused
    ];
    text = ''
      exec ${../deploy/demo}/run.sh ${polymeter}/bin "''${1:-polymeter-demo}"
    '';
  });

  experiment = app (writeShellApplication {
    name = "polymeter-experiment";
    meta.description = "Runs an experiment that a file describes, or one of benches/ by its name, and seals its results";
    runtimeInputs = [
      coreutils
      git
      postgresql
    ];
    text = ''
      export POLYMETER_EXPERIMENTS=${experiments}/bin POLYMETER_LOCK_FILE=${lockFile}
    ''
    + builtins.readFile ./experiment.sh;
  });
}
