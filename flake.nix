{
  description = "Polymeter: a job monitor and profiler, each metric of every job at its own period";

  # By revision, so that the lock file can be held against it; nixos-26.05 when it was chosen.
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

      # The compressing part of TimescaleDB has its own licence, which nixpkgs counts as unfree. Nothing else is let in.
      pkgsFor =
        system:
        import nixpkgs {
          inherit system;
          config.allowUnfreePredicate = package: (package.pname or "") == "timescaledb";
        };

      # A build from a tree with changes has no revision that can be fetched.
      described =
        pkgs: component:
        pkgs.callPackage ./nix/described.nix {
          package = pkgs.callPackage ./nix/package.nix { inherit component; };
          revision = self.rev or null;
          lockFile = ./flake.lock;
        };

      modules = import ./nix/modules { inherit self; };
    in
    {
      packages = forAllSystems (
        system:
        let
          pkgs = pkgsFor system;
        in
        rec {
          default = polymeter;
          polymeter = described pkgs "all";
          agent = described pkgs "agent";
          collector = described pkgs "collector";
          cli = described pkgs "cli";
          experiments = described pkgs "experiments";
          npb = pkgs.callPackage ./nix/npb.nix { };
        }
      );

      overlays.default = final: _prev: {
        polymeter = described final "all";
        polymeter-agent = described final "agent";
        polymeter-collector = described final "collector";
        polymeter-cli = described final "cli";
      };

      nixosModules = modules;

      devShells = forAllSystems (system: {
        default = (pkgsFor system).callPackage ./nix/shell.nix {
          nas-benchmarks = self.packages.${system}.npb;
        };
      });

      apps = forAllSystems (
        system:
        import ./nix/apps.nix {
          pkgs = pkgsFor system;
          packages = self.packages.${system};
          lockFile = ./flake.lock;
        }
      );

      checks = forAllSystems (
        system:
        import ./nix/checks.nix {
          inherit system modules;
          pkgs = pkgsFor system;
          packages = self.packages.${system};
        }
      );

      formatter = forAllSystems (system: (pkgsFor system).nixfmt);
    };
}
