#!/usr/bin/env bash
# Twenty jobs on a cluster of two virtual nodes of this machine, by the real Slurm, through: five kills of the service,
# slurmctld down for a minute, a node that vanishes, a drained one, a worker that is stopped for a minute and one that
# is killed, a killed relay, no network for a minute, a time limit. Compares weights with those of undisturbed runs, and
# counts events. Takes about ten minutes. Needs root, the packages slurmctld, slurmd, slurm-client and munge, and the
# programs of scripts/build.sh release.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec .deps/venv/bin/python -m pytest tests/e2e/check_slurm.py -q -s -ra "$@"
