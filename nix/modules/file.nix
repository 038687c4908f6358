# Writes settings as a configuration file. Keys that are null are left out. The program checks the file during the build of
# the system, so that an invalid configuration never reaches a node.
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
      # The settings without keys, for the check: the key files do not exist during the build.
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
