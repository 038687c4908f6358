# The recipes with nixpkgs' lib alone: every name that they use is there, and the source that would be built.
{ nixpkgsLib }:

let
  # Nix 2.8 has no readFileType, which lib.fileset asks for: it is put under everything that lib imports.
  scope = {
    builtins = builtins // {
      readFileType = path: (builtins.readDir (dirOf path)).${baseNameOf path};
    };
    import = builtins.scopedImport scope;
  };
  lib = if builtins ? readFileType then import nixpkgsLib else builtins.scopedImport scope (nixpkgsLib + "/default.nix");
  recipe =
    component:
    import ../package.nix {
      inherit lib component;
      rustPlatform.buildRustPackage = arguments: arguments;
      pkg-config = "pkg-config";
      zeromq = "zeromq";
    };
  components = [
    "agent"
    "collector"
    "cli"
    "all"
    "experiments"
  ];
in
{
  names = map (component: (recipe component).pname) components;
  flags = (recipe "all").cargoBuildFlags;
  inherit (recipe "all") version meta;
  src = "${(recipe "all").src}";
}
