# The three programs. zeromq is built with libsodium in nixpkgs, and so has CURVE.
{
  lib,
  rustPlatform,
  pkg-config,
  zeromq,
}:

rustPlatform.buildRustPackage {
  pname = "polymeter";
  version = (lib.importTOML ../Cargo.toml).workspace.package.version;

  src = lib.cleanSource ../.;
  cargoLock.lockFile = ../Cargo.lock;
  cargoBuildFlags = [
    "-p"
    "polymeter-agent"
    "-p"
    "polymeter-collector"
    "-p"
    "polymeter-cli"
  ];

  nativeBuildInputs = [ pkg-config ];
  buildInputs = [ zeromq ];

  # They want real cgroups and a PostgreSQL server, which a build sandbox does not have.
  doCheck = false;

  meta = {
    description = "Job monitor and profiler: each metric of every job at its own period";
    license = lib.licenses.asl20;
    mainProgram = "polymeter";
    platforms = lib.platforms.linux;
  };
}
