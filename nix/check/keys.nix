# The configuration keys of a program as its module defines them, one per line. Tables with arbitrary keys end with `.*`.
{ program }:

let
  lib = import ./lib.nix;
  walk =
    prefix: settings:
    builtins.concatMap (
      name:
      let
        setting = settings.${name};
        key = prefix + name;
      in
      if (setting._type or "") == "option" then [ key ] else walk "${key}." setting
    ) (builtins.attrNames settings);
in
builtins.concatStringsSep "\n" (walk "" (import ../modules/settings.nix { inherit lib; } program))
