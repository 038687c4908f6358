# The words of the configuration files as types. An option that is null does not stand in the file: then the program's own
# default counts, so that no default is said twice.
{ lib }:

let
  inherit (lib) mkOption types;
  optional =
    type: example: description:
    mkOption {
      type = types.nullOr type;
      default = null;
      inherit example description;
    };
in
{
  inherit optional;

  # What polymeter-proto's Period reads.
  period = types.strMatching "[0-9]+(us|ms|s|min|h|d)";
  periodOrOff = types.strMatching "off|[0-9]+(us|ms|s|min|h|d)";
  reach = types.strMatching "[0-9]+(s|min|h|d)";
  size = types.strMatching "[0-9]+(KiB|MiB|GiB)";
  endpoint = types.strMatching "(tcp|ipc)://.+";
  # Texts, and not Nix's own paths: those would be copied into the store, which everybody can read.
  absolutePath = types.strMatching "/.*";
  pathOrOff = types.strMatching "off|/.*";
}
