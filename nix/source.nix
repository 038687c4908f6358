# The sources of the programs: the crates of the workspace, and the files that their tests read. Other Nix files, CI
# and the documents outside of docs/ are left out, so that a change of them requires no build.
{ lib }:

let
  inherit (lib.fileset) difference toSource unions;
  inherit ((builtins.fromTOML (builtins.readFile ../Cargo.toml)).workspace) members;
  crates = map (member: ../. + "/${member}") members;
in
toSource {
  root = ../.;
  fileset = difference (unions (
    crates
    ++ [
      ../Cargo.toml
      ../Cargo.lock
      ../clippy.toml
      ../rustfmt.toml
      ../deploy
      ../docs
      ./modules/keys.json
    ]
  )) ../benches/results;
}
