# Three of the NAS Parallel Benchmarks for MPI, workloads of the overhead experiment: EP computes only, CG accesses memory
# irregularly, LU sends many small messages. The package `npb` of nixpkgs is another program.
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
  # The problem sizes: S takes less than a second, B about a minute on one node.
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
    # Taken from Spack's package `npb` and the Phoronix Test Suite's profile pts/npb-1.4.5, which agree; not computed here.
    sha256 = "f3a43467da6e84a829ea869156d3ea86c17932136bb413a4b6dab23018a28881";
  };
  sourceRoot = "NPB${version}/NPB3.4-MPI";

  nativeBuildInputs = [
    gfortran
    mpi
  ];

  # Removes the build date from the programs, for reproducibility.
  postPatch = ''
    substituteInPlace sys/setparams.c --replace-fail "(void) time(&t);" "t = 0;"
  '';

  # MPI's functions take arguments of any type, which gfortran 10 and later rejects without the flag. CC compiles the tools
  # of the build.
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

  # Built one after the other: all share the file that defines the problem size.
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
    # The source files permit use for any purpose, with or without fee.
    license = lib.licenses.free;
    platforms = lib.platforms.linux;
  };
}
