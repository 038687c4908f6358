# The checks of `nix flake check`: the packages, formatting, lints, the tests that can run in a sandbox, the modules, and a
# cluster of two virtual machines.
{
  system,
  pkgs,
  # The flake's packages for this system.
  packages,
  # The flake's modules.
  modules,
}:

let
  base = packages.polymeter.undescribed;

  # The package with other commands and the same inputs.
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
    npb
    ;

  format = cargo "format" [ pkgs.rustfmt ] "cargo fmt --all --check";

  clippy = cargo "clippy" [
    pkgs.clippy
  ] "cargo clippy --workspace --all-targets --locked --offline -- -D warnings";

  # The sandbox has neither root nor writable cgroups: tests that require them print SKIPPED. Python and PostgreSQL with
  # TimescaleDB are available.
  tests =
    cargo "tests"
      [
        pkgs.python3
        (pkgs.postgresql.withPackages (extensions: [ extensions.timescaledb ]))
      ]
      ''
        export HOME=$TMPDIR POLYMETER_REQUIRE=python3,postgres
        cargo build --workspace --locked --offline
        cargo test --workspace --exclude polymeter-structure --locked --offline
      '';

  # Checks that the package is complete: libzmq with CURVE, the revision of the build, manual pages, completions.
  installed = pkgs.runCommand "polymeter-installed" { } ''
    ${packages.polymeter}/bin/polymeter --version --json > version.json
    grep -F '"curve": true' version.json
    grep -F '"lock_sha256": "${builtins.hashFile "sha256" ../flake.lock}"' version.json
    grep -F '"closure": "${packages.polymeter}"' version.json
    cd ${packages.polymeter}/share
    ls man/man1/polymeter-run.1* man/man8/polymeter-agent.8* man/man8/polymeter-collector.8*
    ls bash-completion/completions/polymeter.bash fish/vendor_completions.d/polymeter.fish
    ls zsh/site-functions/_polymeter
    touch $out
  '';

  modules = import ./tests/modules.nix { inherit pkgs modules; };
}
// (
  # Takes about a minute with KVM. It runs on one system only.
  if system != "x86_64-linux" then
    { }
  else
    {
      cluster = pkgs.testers.runNixOSTest (
        import ./tests/cluster.nix {
          inherit modules;
          polymeter = packages.cli;
        }
      );
    }
)
