# The types of configuration keys. An option that is null is left out of the file, so that the program's default applies and
# is defined in one place only.
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

  # The keys of both programs.
  logging = {
    log_level = optional types.str "info" "The events to log: a level, also per module.";
    log_format = optional (types.enum [
      "text"
      "json"
    ]) "text" "The form of log lines.";
  };

  # A period, as polymeter-proto parses it.
  period = types.strMatching "[0-9]+(us|ms|s|min|h|d)";
  periodOrOff = types.strMatching "off|[0-9]+(us|ms|s|min|h|d)";
  reach = types.strMatching "[0-9]+(s|min|h|d)";
  keep = types.strMatching "forever|[0-9]+(d|y)";
  size = types.strMatching "[0-9]+(KiB|MiB|GiB)";
  endpoint = types.strMatching "(tcp|ipc)://.+";
  # A value, or a list of several.
  oneOrMore = type: types.either type (types.nonEmptyListOf type);
  # Strings instead of Nix paths, which would be copied into the Nix store, where every user can read them.
  absolutePath = types.strMatching "/.*";
  pathOrOff = types.strMatching "off|/.*";
}
