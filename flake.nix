{
  description = "Polymeter: a job monitor and profiler, each metric of every job at its own period";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/21a67dc470149f337cecafbe965d8d252a390518";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      # Without nixpkgs' lib, so that the shape of the outputs can be evaluated where nixpkgs cannot be fetched.
      forAllSystems =
        make:
        builtins.listToAttrs (
          map (system: {
            name = system;
            value = make system;
          }) systems
        );
    in
    {
      packages = forAllSystems (
        system:
        let
          polymeter = nixpkgs.legacyPackages.${system}.callPackage ./nix/package.nix { };
        in
        {
          inherit polymeter;
          default = polymeter;
        }
      );

      overlays.default = final: _previous: { polymeter = final.callPackage ./nix/package.nix { }; };

      devShells = forAllSystems (system: {
        default = nixpkgs.legacyPackages.${system}.callPackage ./nix/shell.nix { };
      });
    };
}
