# The paths of the recipes' source, one per line. In place of nixpkgs' file sets there are lists, which leave
# nothing out.
let
  root = toString ../..;
  relative = path: builtins.substring (builtins.stringLength root + 1) (-1) (toString path);
  lib.fileset = {
    unions = paths: paths;
    difference = paths: _: paths;
    toSource = { fileset, ... }: fileset;
  };
in
builtins.concatStringsSep "\n" (map relative (import ../source.nix { inherit lib; }))
