#!/usr/bin/env bash
# Ranks on a simulated network under a virtual clock: delays, breaks, partitions, stops and kills from one seed, and the
# restart from the newest checkpoint (tests/simulation/rank_world.hpp). CI takes 200 seeds.
#
#   scripts/simulate-ranks.sh [SEEDS [FIRST]]   10,000 seeds from 1 on by default
#   DISTILLD_TRACE=1 scripts/simulate-ranks.sh 1 SEED   what happens with one seed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/build.sh" release simulation >&2
DISTILLD_SEEDS=${1:-10000} DISTILLD_FIRST_SEED=${2:-1} "$root/build/release/bin/simulation" \
    --gtest_filter=RankFaults.EndAllRanksAndLoseNothing
