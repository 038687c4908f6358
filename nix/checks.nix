# What `nix flake check` builds: the packages, form, lints, the tests that a sandbox can run, the modules, and a cluster of
# two virtual machines.
{
  pkgs,
  # The flake's packages for this system.
  packages,
  # The flake's modules.
  modules,
}:

let
  inherit (pkgs) lib;
  base = packages.polymeter.undescribed;

  # The package, doing something else with the same inputs.
  cargo =
    name: tools: commands:
    base.overrideAttrs (previous: {
      pname = "polymeter-${name}";
      nativeBuildInputs = previous.nativeBuildInputs ++ tools;
      buildPhase = ''
        runHook preBuild
        ${commands}
        runHook postBuild
      '';
      installPhase = "touch $out";
      dontFixup = true;
    });
in
{
  inherit (packages)
    agent
    collector
    cli
    polymeter
    experiments
    ;

  format = cargo "format" [ pkgs.rustfmt ] "cargo fmt --all --check";

  clippy = cargo "clippy" [
    pkgs.clippy
  ] "cargo clippy --workspace --all-targets --locked --offline -- -D warnings";

  # A sandbox has no cgroups to write to and is not root: what needs them says SKIPPED. Python and PostgreSQL are there.
  tests =
    cargo "tests"
      [
        pkgs.python3
        pkgs.postgresql
      ]
      ''
        export HOME=$TMPDIR POLYMETER_REQUIRE=python3,postgres
        cargo build --workspace --locked --offline
        cargo test --workspace --locked --offline
      '';

  modules = import ./tests/modules.nix { inherit pkgs modules; };
}
// lib.optionalAttrs (pkgs.stdenv.hostPlatform.system == "x86_64-linux") {
  # Where there is KVM this takes a minute; it is asked for on one system only.
  cluster = pkgs.testers.runNixOSTest (
    import ./tests/cluster.nix {
      inherit modules;
      polymeter = packages.cli;
    }
  );
}
