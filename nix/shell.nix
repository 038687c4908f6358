# What one needs to work on Polymeter, and to run its experiments.
{
  mkShell,
  cargo,
  cargo-deny,
  clippy,
  gfortran,
  gnumake,
  iproute2,
  mpi,
  munge,
  pkg-config,
  postgresql,
  python3,
  rustc,
  rustfmt,
  util-linux,
  zeromq,
  # The flake's own; nixpkgs has nothing of this name, and something else that is called npb.
  nas-benchmarks,
}:

mkShell {
  packages = [
    cargo
    cargo-deny
    clippy
    rustc
    rustfmt
    gnumake
    pkg-config
    # Built with libsodium in nixpkgs, and so with CURVE.
    zeromq
    # What the tests start and call: a server with TimescaleDB, credentials, `ip`, `setpriv`.
    (postgresql.withPackages (extensions: [ extensions.timescaledb ]))
    munge
    iproute2
    util-linux
    # Real workloads, and what one writes others with.
    nas-benchmarks
    mpi
    gfortran
    # Looking at results: plots, and reading the samples of a bundle.
    (python3.withPackages (modules: [
      modules.matplotlib
      modules.pandas
      modules.pyarrow
    ]))
  ];
}
