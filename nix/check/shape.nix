# The names of the flake's outputs, and the proof that finding them needs no nixpkgs.
let
  flake = import ../../flake.nix;
  self = flake.outputs {
    inherit self;
    nixpkgs = throw "the shape of the outputs must not need nixpkgs";
  };
  names = value: toString (builtins.attrNames value);
  # Of a derivation only nixpkgs knows more.
  whole = [
    "devShells"
    "formatter"
    "nixosModules"
    "overlays"
  ];
in
builtins.concatStringsSep "\n" (
  builtins.concatMap (
    output:
    let
      value = self.${output};
    in
    if builtins.elem output whole then
      [ "${output}: ${names value}" ]
    else
      map (system: "${output}.${system}: ${names value.${system}}") (builtins.attrNames value)
  ) (builtins.attrNames self)
)
