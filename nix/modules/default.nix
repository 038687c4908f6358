# The flake's NixOS modules: each uses this flake's package by default.
{ self }:

let
  with-package =
    module: service: package:
    { lib, pkgs, ... }:
    {
      imports = [ module ];
      services.${service}.package =
        lib.mkDefault
          self.packages.${pkgs.stdenv.hostPlatform.system}.${package};
    };
in
rec {
  polymeter-agent = with-package ./agent.nix "polymeter-agent" "agent";
  polymeter-collector = with-package ./collector.nix "polymeter-collector" "collector";
  default = {
    imports = [
      polymeter-agent
      polymeter-collector
    ];
  };
}
