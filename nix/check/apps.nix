# The apps, of which `nix flake check` of Nix 2.8 looks at the names only: each has what newer ones want, and no more.
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
