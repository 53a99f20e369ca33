#!/usr/bin/env bash
# Kills service and workers at random points (200 unless --points says otherwise: during startup, between steps, while
# a checkpoint or the export is written, between jobs; the worker, the service, or both at once), lets the jobs finish,
# and compares weights, event logs and the list of jobs with those of undisturbed runs. Needs the programs of
# scripts/build.sh release. Prints its seed; --seed repeats the same points.
#
#   scripts/crash-test.sh [--points 200] [--seed N]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

points=200
seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 0 ]; do
    case $1 in
        --points) points=${2:?--points N} ;;
        --seed) seed=${2:?--seed N} ;;
        *)
            sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
            exit 2
            ;;
    esac
    shift 2
done

export DISTILLD_CRASH_POINTS=$points DISTILLD_CRASH_SEED=$seed
exec .deps/venv/bin/python -m pytest tests/e2e/test_crash_points.py -q
