#!/usr/bin/env bash
# Trains small students on this machine's GPU with every kind of target, optimizer and packing, compares their losses
# with the CPU's and two runs bit by bit: tests/e2e/test_cuda.py. Then prints tokens/s of whole training steps, and
# their operations per second over those of a large matrix product (MFU, with the measured rate as the peak):
# bench/compare_hf.py. Uses the programs in DISTILLD_BIN_DIR, else build/cuda/bin, else build/release/bin. Without a
# CUDA device it says so, and why.
#
#   --cpu   run the same on the CPU, to test this check
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

export DISTILLD_TEST_DEVICE=cuda
shapes=(--shape 42M --shape 1.2B)
if [ "${1:-}" = --cpu ]; then
    export DISTILLD_TEST_DEVICE=cpu
    shapes=(--shape 0.9M)
    shift
fi
if [ $# != 0 ]; then
    echo "usage: scripts/check-cuda.sh [--cpu]" >&2
    exit 2
fi
for folder in build/cuda/bin build/release/bin; do
    if [ -z "${DISTILLD_BIN_DIR:-}" ] && [ -x "$folder/distilld-worker" ]; then
        export DISTILLD_BIN_DIR=$root/$folder
    fi
done
if [ -z "${DISTILLD_BIN_DIR:-}" ]; then
    echo "check-cuda: no programs: run DISTILLD_TORCH=FOLDER scripts/build.sh cuda first" >&2
    exit 1
fi
python=python3
if [ -x .deps/venv/bin/python ]; then python=.deps/venv/bin/python; fi
"$python" -m pytest tests/e2e/test_cuda.py -q -rs -s
exec "$python" bench/compare_hf.py --bench "$DISTILLD_BIN_DIR/distilld-bench" --device "$DISTILLD_TEST_DEVICE" \
    "${shapes[@]}" --rounds 2 --ways "distilld fp32" "distilld bf16"
