# The names of the flake's outputs. Evaluating them must not require nixpkgs.
let
  flake = import ../../flake.nix;
  self = flake.outputs {
    inherit self;
    nixpkgs = throw "the shape of the outputs must not need nixpkgs";
  };
  names = value: toString (builtins.attrNames value);
  # The contents of these outputs require nixpkgs.
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
