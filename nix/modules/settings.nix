# The options of a program's configuration keys, from keys.json, which is written from the declarations of the
# keys (docs/extend/configuration-key.md). An option that is null is left out of the file, so that the program's
# default applies and is defined in one place only.
{ lib }:

program:
let
  inherit (lib) mkOption types;
  oneOrMore = type: types.either type (types.nonEmptyListOf type);

  # The names in keys.json.
  named = rec {
    flag = types.bool;
    string = types.str;
    strings = types.listOf string;
    stringOrStrings = oneOrMore string;
    # A period, as polymeter-proto parses it.
    period = types.strMatching "[0-9]+(us|ms|s|min|h|d)";
    periodOrOff = types.strMatching "off|[0-9]+(us|ms|s|min|h|d)";
    periods = types.attrsOf periodOrOff;
    # Tables with strings, numbers and tables.
    tables = types.listOf (types.attrsOf types.anything);
    reach = types.strMatching "[0-9]+(s|min|h|d)";
    keep = types.strMatching "forever|[0-9]+(d|y)";
    size = types.strMatching "[0-9]+(KiB|MiB|GiB)";
    sizeOrOff = types.strMatching "off|[0-9]+(KiB|MiB|GiB)";
    endpoint = types.strMatching "(tcp|ipc)://.+";
    endpoints = oneOrMore endpoint;
    address = types.strMatching ".+:[0-9]+";
    tcpAddress = types.strMatching "tcp://.+:[0-9]+";
    url = types.strMatching "https?://.+";
    # Strings instead of Nix paths, which would be copied into the Nix store, where every user can read them.
    path = types.strMatching "/.*";
    pathOrOff = types.strMatching "off|/.*";
  };

  typeOf =
    kind:
    if kind ? words then
      types.enum kind.words
    else if kind ? from then
      types.ints.between kind.from kind.to
    else
      named.${kind};

  optionOf =
    key:
    mkOption (
      {
        type = types.nullOr (typeOf key.type);
        default = null;
        inherit (key) description;
      }
      // (if key ? example then builtins.fromTOML "example = ${key.example}" else { })
    );

  optionsOf = builtins.mapAttrs (_: key: if key ? type then optionOf key else optionsOf key);
in
optionsOf (builtins.fromJSON (builtins.readFile ./keys.json)).${program}
