# A package with `share/polymeter/build.json` beside its programs: of which revision and with which lock file it was made.
# `polymeter --version --json` and experiment bundles tell it. It is added afterwards, so that a new revision that changes
# no source compiles nothing anew.
{
  runCommand,
  package,
  # null where nobody knows it, as in a tree with changes that are not committed.
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
    # Copies and no links: a program finds what lies beside it by its own real path.
    cp -r --no-preserve=ownership ${package} $out
    chmod -R u+w $out
    install -D -m 444 "$buildPath" $out/share/polymeter/build.json
  ''
