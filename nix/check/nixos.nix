# A minimal NixOS for the modules: it declares the options that they set, so that a machine can be evaluated with nixpkgs'
# lib.
{ lib }:

let
  # JSON's strings, numbers and lists are valid TOML, too; tables are written inline.
  toml =
    value:
    if lib.isAttrs value then
      "{ ${
        lib.concatStringsSep ", " (lib.mapAttrsToList (key: value: "${builtins.toJSON key} = ${toml value}") value)
      } }"
    else
      builtins.toJSON value;
  document =
    settings:
    lib.concatStrings (lib.mapAttrsToList (key: value: "${builtins.toJSON key} = ${toml value}\n") settings);

  anything =
    default:
    lib.mkOption {
      type = lib.types.anything;
      inherit default;
    };
  listOfPorts = lib.mkOption {
    type = lib.types.listOf lib.types.port;
    default = [ ];
  };
  attributes = lib.mkOption {
    type = lib.types.attrsOf lib.types.anything;
    default = { };
  };
  # A unit merges as in NixOS if a module defines a list twice.
  unit = lib.types.submodule {
    freeformType = lib.types.attrsOf lib.types.anything;
    options = lib.genAttrs [ "after" "wants" "requires" "wantedBy" ] (
      _:
      lib.mkOption {
        type = lib.types.listOf lib.types.str;
        default = [ ];
      }
    );
  };

  nixos =
    { config, ... }:
    {
      options = {
        boot = attributes;
        environment.etc = attributes;
        fileSystems = attributes;
        networking.firewall.allowedTCPPorts = listOfPorts;
        services.postgresql = anything { };
        system = attributes;
        systemd.services = lib.mkOption {
          type = lib.types.attrsOf unit;
          default = { };
        };
        systemd.units = attributes;
        users.users = attributes;
        users.groups = attributes;
      };
      config.systemd.units = lib.mapAttrs' (
        name: _: lib.nameValuePair "${name}.service" { unit = "/units"; }
      ) config.systemd.services;
    };
in
{
  toml = {
    type = lib.types.attrsOf lib.types.anything;
    # Only the path of a program is written, without a dependency on it: it is not built.
    generate = name: settings: builtins.toFile name (builtins.unsafeDiscardStringContext (document settings));
  };

  evaluated =
    pkgs: modules:
    (lib.evalModules {
      specialArgs = { inherit pkgs; };
      modules = [ nixos ] ++ modules;
    }).config;
}
