#!/bin/sh
# A Slurm job that is sampled more closely while it computes. Submit it with sbatch.
#SBATCH --job-name=polymeter-example
#SBATCH --nodes=1
#SBATCH --time=10
# A sampling request at submission, granted within the administrator's limits:
#SBATCH --comment='polymeter: cpu.*=100ms, memory.current=100ms'

# A job must not fail because it cannot be watched: nothing here depends on the status of polymeter.
note() { polymeter "$@" || true; }

note mark setup --begin
data=$(mktemp) || exit 1
trap 'rm -f "$data"' EXIT
head -c 20000000 /dev/urandom >"$data"
note mark setup --end

# From here on at 10 ms, for at most five minutes.
note set 'cpu.*=10ms' --for 5min
note mark solver --begin
for round in 1 2 3; do
    sum=$(cksum <"$data" | cut -d' ' -f1)
    # An own value beside the samples, as user.checksum_round.
    note push checksum_round="$round" --unit rounds
    echo "round $round: $sum"
done
note mark solver --end
note reset
