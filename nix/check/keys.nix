# The keys of a program's file as its module knows them, one to a line; tables that take any key end in a dot and a star.
{ file }:

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
builtins.concatStringsSep "\n" (walk "" (import file { inherit lib; }))
