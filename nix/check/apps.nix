# Checks that each app has exactly the attributes that newer versions of Nix require. `nix flake check` of Nix 2.8 checks
# their names only.
{ nixpkgs }:

let
  flake = import ../../flake.nix;
  self = flake.outputs { inherit self nixpkgs; };
  isApp =
    app:
    builtins.attrNames app == [
      "meta"
      "program"
      "type"
    ]
    && app.type == "app"
    && builtins.match "/nix/store/.*/bin/.*" app.program != null
    && builtins.isString app.meta.description;
in
builtins.all (system: builtins.all isApp (builtins.attrValues self.apps.${system})) (
  builtins.attrNames self.apps
)
