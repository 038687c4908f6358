# What the recipes make, beside that they evaluate: the source that would be built, the script that puts manual pages and
# completions where they belong, and which benchmarks there are.
{ nixpkgsLib }:

let
  nixpkgs = import ./nixpkgs.nix { inherit nixpkgsLib; };
  pkgs = nixpkgs { };
  recipe = pkgs: component: (pkgs.callPackage ../package.nix { inherit component; }).arguments;
  npb = pkgs.callPackage ../npb.nix { };

  postInstall = component: (recipe pkgs component).postInstall;
  # Where what is built cannot be run, another polymeter writes the pages.
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
