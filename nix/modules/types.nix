# The types of configuration keys. An option that is null is left out of the file; then the program's default applies, so
# that no default is stated twice.
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

  # A period, as polymeter-proto parses it.
  period = types.strMatching "[0-9]+(us|ms|s|min|h|d)";
  periodOrOff = types.strMatching "off|[0-9]+(us|ms|s|min|h|d)";
  reach = types.strMatching "[0-9]+(s|min|h|d)";
  size = types.strMatching "[0-9]+(KiB|MiB|GiB)";
  endpoint = types.strMatching "(tcp|ipc)://.+";
  # Strings instead of Nix paths: those would be copied into the Nix store, which every user can read.
  absolutePath = types.strMatching "/.*";
  pathOrOff = types.strMatching "off|/.*";
}
