# A package with `share/polymeter/build.json` beside its programs: the revision and the hash of the lock file. `polymeter
# --version --json` and experiment bundles report it. It is added after the build, so that a new revision with unchanged
# sources requires no compilation.
{
  runCommand,
  package,
  # null if unknown, as in a tree with uncommitted changes.
  revision,
  lockFile,
}:

runCommand package.name
  {
    inherit (package) pname version meta;
    passthru.undescribed = package;
    build = builtins.toJSON {
      inherit revision;
      lock_sha256 = builtins.hashFile "sha256" lockFile;
    };
    passAsFile = [ "build" ];
    preferLocalBuild = true;
  }
  ''
    # Copies, not links: a program finds the files beside it by its own real path.
    cp -r --no-preserve=ownership ${package} $out
    chmod -R u+w $out
    install -D -m 444 "$buildPath" $out/share/polymeter/build.json
  ''
