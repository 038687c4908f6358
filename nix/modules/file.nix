# A configuration file out of settings. What is null is left out; the program itself checks the rest while the system is
# built, so that a wrong key or value never reaches a node.
{ lib, pkgs }:

let
  format = pkgs.formats.toml { };
  said =
    settings:
    lib.filterAttrs (_: value: value != null && value != { }) (
      lib.mapAttrs (_: value: if lib.isAttrs value then said value else value) settings
    );
  runnable = pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform;
in
{
  inherit (format) type;
  inherit said;

  make =
    {
      name,
      settings,
      program,
      check,
      # The settings as they can be checked where no key is.
      keyless,
    }:
    let
      file = format.generate name (said settings);
      checkable = format.generate name (said keyless);
    in
    if check && runnable then
      pkgs.runCommand name { } ''
        ${program} --config ${checkable} --check
        cp ${file} $out
      ''
    else
      file;
}
