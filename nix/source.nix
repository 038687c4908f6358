# The sources of the programs. Documents, Nix files and CI are left out, so that a change of them requires no build; files
# that the tests read are included.
{ lib }:

lib.fileset.toSource {
  root = ../.;
  fileset = lib.fileset.unions [
    ../Cargo.toml
    ../Cargo.lock
    ../clippy.toml
    ../rustfmt.toml
    ../proto
    ../service
    ../store
    ../analysis
    ../node-agent
    ../collector
    ../cli
    ../e2e
    (lib.fileset.difference ../benches ../benches/results)
    ../deploy
    ../docs
    ../examples
    ../fuzz
  ];
}
