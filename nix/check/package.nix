# The parts of the recipes that can be checked without a build: the source, the script that installs manual pages and
# completions, and the list of benchmarks.
{ nixpkgsLib }:

let
  nixpkgs = import ./nixpkgs.nix { inherit nixpkgsLib; };
  pkgs = nixpkgs { };
  recipe = pkgs: component: (pkgs.callPackage ../package.nix { inherit component; }).arguments;
  npb = pkgs.callPackage ../npb.nix { };

  postInstall = component: (recipe pkgs component).postInstall;
  # If the built program cannot run on the build machine, a `polymeter` of the build machine writes the pages.
  foreign = (recipe (nixpkgs { canExecute = false; }) "all").postInstall;
in
assert pkgs.lib.all (component: postInstall component == "") [
  "agent"
  "collector"
];
assert pkgs.lib.all (component: postInstall component == postInstall "all") [
  "cli"
  "experiments"
];
assert pkgs.lib.hasInfix "-polymeter-cli-" foreign && !pkgs.lib.hasInfix "$out/bin" foreign;
{
  src = "${(recipe pkgs "all").src}";
  postInstall = postInstall "all";
  benchmarks = pkgs.lib.mapCartesianProduct ({ kernel, class }: "${kernel}.${class}.x") {
    kernel = npb.kernels;
    class = npb.classes;
  };
}
