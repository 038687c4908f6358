# The development shell: tools to build and test Polymeter, and to run its experiments.
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
  openssl,
  pkg-config,
  postgresql,
  python3,
  rustc,
  rustfmt,
  util-linux,
  zeromq,
  # The flake's `npb`; `npb` of nixpkgs is another program.
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
    # nixpkgs builds it with libsodium, which provides CURVE.
    zeromq
    # Required by the tests: PostgreSQL with TimescaleDB, MUNGE, openssl, `ip`, `setpriv`.
    (postgresql.withPackages (extensions: [ extensions.timescaledb ]))
    munge
    openssl
    iproute2
    util-linux
    # Workloads, and compilers for further ones.
    nas-benchmarks
    mpi
    gfortran
    # Analysis of results: plots, and the samples in a bundle.
    (python3.withPackages (modules: [
      modules.matplotlib
      modules.pandas
      modules.pyarrow
    ]))
  ];
}
