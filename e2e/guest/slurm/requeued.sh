#!/bin/sh
# A job whose first run waits to be requeued, and whose second one ends with an exit status of its own.
[ -n "$SLURM_RESTART_COUNT" ] || sleep 600
exit 3
