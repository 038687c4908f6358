# The names of the flake's outputs, and the proof that finding them needs no nixpkgs.
let
  flake = import ../../flake.nix;
  self = flake.outputs {
    inherit self;
    nixpkgs = throw "the shape of the outputs must not need nixpkgs";
  };
  names = builtins.attrNames;
in
builtins.concatStringsSep "\n" (
  map (output: "${output}: ${toString (names self.${output})}") (names self)
  ++ [ "modules: ${toString (names self.nixosModules)}" ]
)
