# The options of the program of a service.
{ lib }:

program: {
  package = lib.mkOption {
    type = lib.types.package;
    description = "The package that has `bin/${program}`.";
  };

  checkConfig = lib.mkOption {
    type = lib.types.bool;
    default = true;
    description = "Check the configuration with `${program}` while the system is built.";
  };
}
