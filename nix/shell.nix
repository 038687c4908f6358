# What one needs to work on Polymeter.
{
  mkShell,
  cargo,
  clippy,
  rustc,
  rustfmt,
  pkg-config,
  zeromq,
  postgresql_15,
  python3,
}:

mkShell {
  packages = [
    cargo
    clippy
    rustc
    rustfmt
    pkg-config
    zeromq
    postgresql_15
    python3
  ];
}
