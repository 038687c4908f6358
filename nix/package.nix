# The programs, or one of them. nixpkgs builds zeromq with libsodium, which provides CURVE.
{
  lib,
  stdenv,
  buildPackages,
  rustPlatform,
  installShellFiles,
  pkg-config,
  zeromq,
  component ? "all",
}:

let
  # The components: the packages of the workspace, and the main program.
  components = {
    agent = {
      crates = [ "polymeter-agent" ];
      program = "polymeter-agent";
    };
    collector = {
      crates = [ "polymeter-collector" ];
      program = "polymeter-collector";
    };
    cli = {
      crates = [
        "polymeter-cli"
        "polymeter-regions"
      ];
      program = "polymeter";
    };
    all = {
      crates = [
        "polymeter-agent"
        "polymeter-collector"
        "polymeter-cli"
        "polymeter-regions"
      ];
      program = "polymeter";
    };
    # The experiments start the daemons from their own directory.
    experiments = {
      crates = [
        "polymeter-agent"
        "polymeter-collector"
        "polymeter-cli"
        "polymeter-regions"
        "polymeter-benches"
      ];
      program = "polymeter";
    };
  };
  inherit (components.${component}) crates program;

  hasCli = lib.elem "polymeter-cli" crates;
  runnable = stdenv.buildPlatform.canExecute stdenv.hostPlatform;
  # The program that writes manual pages, including the daemons', and completions. If it cannot run on the build machine, a
  # build of the same program for the build machine writes them.
  cli =
    if runnable then
      "$out/bin/polymeter"
    else
      lib.getExe (buildPackages.callPackage ./package.nix { component = "cli"; });
in
rustPlatform.buildRustPackage {
  pname = if component == "all" then "polymeter" else "polymeter-${component}";
  version = (lib.importTOML ../Cargo.toml).workspace.package.version;

  src = import ./source.nix { inherit lib; };
  cargoLock.lockFile = ../Cargo.lock;
  cargoBuildFlags = lib.concatMap (crate: [
    "-p"
    crate
  ]) crates;

  nativeBuildInputs = [
    installShellFiles
    pkg-config
  ];
  buildInputs = [ zeromq ];

  postInstall = lib.optionalString hasCli ''
    ${cli} man --out pages
    installManPage pages/*
    for shell in bash fish zsh; do
      ${cli} completions $shell > polymeter.$shell
      installShellCompletion --cmd polymeter --$shell polymeter.$shell
    done
    ln -s libpolymeter_regions.so $out/lib/libpolymeter_regions.so.1
    mkdir -p $out/share/polymeter
    cp -r node-agent/regions/include $out/
    cp -r node-agent/regions/share $out/share/polymeter/regions
  '';

  # The tests are a check of the flake, which builds everything again without optimisation: nix/checks.nix.
  doCheck = false;

  meta = {
    description = "Job monitor and profiler: each metric of every job at its own period";
    license = lib.licenses.asl20;
    mainProgram = program;
    platforms = lib.platforms.linux;
  };
}
