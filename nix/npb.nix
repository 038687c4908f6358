# Three of the NAS Parallel Benchmarks, over MPI, as the overhead experiment's workloads: EP only computes, CG jumps about in
# memory, LU sends many small messages. `npb` of nixpkgs itself is something else.
{
  lib,
  stdenv,
  fetchurl,
  gfortran,
  mpi,
  kernels ? [
    "ep"
    "cg"
    "lu"
  ],
  # The sizes: S ends at once, B takes a node about a minute.
  classes ? [
    "S"
    "A"
    "B"
    "C"
  ],
}:

let
  version = "3.4.1";
in
stdenv.mkDerivation {
  pname = "nas-parallel-benchmarks-mpi";
  inherit version;

  src = fetchurl {
    url = "https://www.nas.nasa.gov/assets/npb/NPB${version}.tar.gz";
    # Not computed here: Spack's package `npb` and the Phoronix Test Suite's profile pts/npb-1.4.5 both have it for this file.
    sha256 = "f3a43467da6e84a829ea869156d3ea86c17932136bb413a4b6dab23018a28881";
  };
  sourceRoot = "NPB${version}/NPB3.4-MPI";

  nativeBuildInputs = [
    gfortran
    mpi
  ];

  # The programs would have the day on which they were built in them.
  postPatch = ''
    substituteInPlace sys/setparams.c --replace-fail "(void) time(&t);" "t = 0;"
  '';

  # MPI's calls take arguments of any type, which gfortran refuses since version 10. CC is for what runs while it is built.
  configurePhase = ''
    runHook preConfigure
    cat > config/make.def <<'END'
    MPIFC = mpifort
    FLINK = mpifort
    FFLAGS = -O3 -fallow-argument-mismatch
    FLINKFLAGS = -O3
    FMPI_LIB =
    FMPI_INC =
    CC = cc
    BINDIR = ../bin
    RAND = randi8
    END
    runHook postConfigure
  '';

  # One after the other: all share the file that says the size.
  buildPhase = ''
    runHook preBuild
    mkdir -p bin
    for kernel in ${toString kernels}; do
      for class in ${toString classes}; do
        make $kernel CLASS=$class
      done
    done
    runHook postBuild
  '';

  installPhase = ''
    runHook preInstall
    install -D -t $out/bin bin/*.x
    runHook postInstall
  '';

  passthru = { inherit kernels classes; };

  meta = {
    description = "EP, CG and LU of the NAS Parallel Benchmarks, for MPI";
    homepage = "https://www.nas.nasa.gov/software/npb.html";
    # As its files say: for any purpose, with or without fee.
    license = lib.licenses.free;
    platforms = lib.platforms.linux;
  };
}
