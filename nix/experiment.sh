# Runs an experiment with the programs in $POLYMETER_EXPERIMENTS, and seals its results as a bundle: with the description,
# the machine, the revision, the lock file and a manifest. This file is the text of the app `experiment` in apps.nix.
usage() {
    cat >&2 <<'END'
usage: experiment FILE [DIRECTORY]               the overhead experiment that FILE describes
       experiment papers DIRECTORY [NAME...]     the experiments of papers, or those of these names
       experiment NAME DIRECTORY [ARGUMENT...]   another of benches/README.md, such as scale or gather
DIRECTORY gets the results; without it, one of a new name here.
END
    exit 2
}
[ $# -ge 1 ] || usage
programs=$POLYMETER_EXPERIMENTS
# A job's cgroups require root, as which Open MPI runs only if both variables are set.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [ "$1" = papers ] && [ $# -ge 2 ]; then
    out=$2
    shift 2
    # Resumes an interrupted run, and seals the results of each experiment.
    exec "$programs/polymeter-bench" papers --out "$out" "$@"
fi
if [ -f "$1" ]; then
    description=$1
    out=${2:-experiment-$(basename "$description" .toml)-$(date -u +%Y%m%dT%H%M%SZ)}
    # Resumes an interrupted run. Results of another experiment are rejected and remain unchanged.
    "$programs/polymeter-bench" overhead "$description" --out "$out"
    [ "$description" -ef "$out/description.toml" ] || cp "$description" "$out/description.toml"
else
    name=$1
    if [ $# -lt 2 ] || ! "$programs/polymeter-bench" "$name" --help >/dev/null; then usage; fi
    out=$2
    shift 2
    mkdir -p "$out"
    [ -z "$(ls -A "$out")" ] || {
        echo "$out is not empty: say another directory" >&2
        exit 1
    }
    printf '%s\n' "$name" "$@" >"$out/arguments.txt"
    "$programs/polymeter-bench" "$name" "$@" | tee "$out/results.md"
fi
cp "$POLYMETER_LOCK_FILE" "$out/flake.lock"
"$programs/polymeter" bundle seal "$out"
echo "The results are in $out; \`polymeter bundle verify $out\` checks them."
