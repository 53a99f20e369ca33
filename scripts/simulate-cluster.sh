#!/usr/bin/env bash
# A service with jobs on a simulated Slurm cluster under a virtual clock: kills, stops, partitions, a slow or dead
# slurmctld, lost answers and a full disk from one seed (tests/simulation/cluster_world.hpp). CI takes 200 seeds.
#
#   scripts/simulate-cluster.sh [SEEDS [FIRST]]   10,000 seeds from 1 on by default
#   DISTILLD_TRACE=1 scripts/simulate-cluster.sh 1 SEED   what happens with one seed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/build.sh" release cluster_simulation >&2
DISTILLD_SEEDS=${1:-10000} DISTILLD_FIRST_SEED=${2:-1} "$root/build/release/bin/cluster_simulation" \
    --gtest_filter=ClusterFaults.LoseNoJobAndDoubleNothing
