# A minimal nixpkgs with the names that this flake uses, around the real lib. A package is a derivation that is never built,
# with the arguments of its recipe as attributes. Each name was looked up in nixpkgs before it was added.
{ nixpkgsLib }:
{
  system ? "x86_64-linux",
  # True if this machine can run the programs that it builds.
  canExecute ? true,
  ...
}:

let
  # Nix 2.8 has no readFileType, which lib.fileset requires: it is added to the scope of everything that lib imports.
  scope = {
    builtins = builtins // {
      readFileType = path: (builtins.readDir (dirOf path)).${baseNameOf path};
    };
    import = builtins.scopedImport scope;
  };
  lib =
    if builtins ? readFileType then
      import nixpkgsLib
    else
      builtins.scopedImport scope (nixpkgsLib + "/default.nix");

  made =
    arguments:
    let
      name = arguments.name or "${arguments.pname}-${arguments.version}";
      nothing = derivation {
        inherit name system;
        builder = "/bin/sh";
        # Forces the evaluation of a recipe's inputs.
        args = map toString (
          arguments.nativeBuildInputs or [ ] ++ arguments.buildInputs or [ ] ++ arguments.packages or [ ]
        );
        scripts = map (phase: arguments.${phase} or "") [
          "script"
          "text"
          "postPatch"
          "configurePhase"
          "buildPhase"
          "installPhase"
          "postInstall"
        ];
      };
    in
    nothing
    // arguments.passthru or { }
    // {
      inherit name arguments;
      inherit (arguments) meta;
      overrideAttrs = change: made (arguments // change arguments);
    };
  described = arguments: made ({ meta.description = "of nixpkgs"; } // arguments);

  leaves = lib.genAttrs [
    "cargo"
    "cargo-deny"
    "clippy"
    "coreutils"
    "gawk"
    "gfortran"
    "git"
    "gnugrep"
    "gnumake"
    "gnused"
    "installShellFiles"
    "iproute2"
    "mpi"
    "munge"
    "nixfmt"
    "pkg-config"
    "rustc"
    "rustfmt"
    "systemd"
    "util-linux"
    "zeromq"
  ] (name: described { inherit name; });

  pkgs = leaves // {
    inherit lib pkgs;
    callPackage = lib.callPackageWith pkgs;
    # The build machine can run the packages of its own platform.
    buildPackages = if canExecute then pkgs else import ./nixpkgs.nix { inherit nixpkgsLib; } { inherit system; };

    stdenv = {
      mkDerivation = described;
      buildPlatform.canExecute = _: canExecute;
      hostPlatform = { inherit system; };
    };
    rustPlatform.buildRustPackage = described;
    mkShell = arguments: described ({ name = "nix-shell"; } // arguments);
    fetchurl = arguments: described { name = baseNameOf arguments.url; };
    runCommand =
      name: arguments: script:
      described (arguments // { inherit name script; });
    writeShellApplication =
      arguments:
      described (
        arguments
        // {
          meta = arguments.meta // {
            mainProgram = arguments.name;
          };
          nativeBuildInputs = arguments.runtimeInputs;
        }
      );

    postgresql.withPackages =
      choose:
      described {
        name = "postgresql-and-plugins";
        buildInputs = choose { timescaledb = described { name = "timescaledb"; }; };
      };
    python3 = described {
      name = "python3";
      passthru.withPackages =
        choose:
        described {
          name = "python3-env";
          buildInputs = choose (
            lib.genAttrs [
              "matplotlib"
              "pandas"
              "pyarrow"
            ] (name: described { inherit name; })
          );
        };
    };

    # The modules' files are written directly, as TOML with JSON's values: see nixos.nix.
    formats.toml = _: (import ./nixos.nix { inherit lib; }).toml;
    nixos = machine: {
      config = (import ./nixos.nix { inherit lib; }).evaluated pkgs [ machine ];
    };
    # The machines are evaluated by NixOS only.
    testers.runNixOSTest = test: described { inherit (test) name; };
  };
in
pkgs
