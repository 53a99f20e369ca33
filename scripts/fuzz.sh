#!/usr/bin/env bash
# Fuzzes the parsers of foreign input, each target for some minutes of CPU time, one after another at low priority; CI
# takes 22 CPU-seconds for each. Targets: answers of teachers, by protocol; HTTP requests (http); job specs (spec);
# safetensors headers; stores; checkpoints; messages between worker and service (messages) and the frames around them
# (link); answers of Slurm's commands (slurm); and requests of a served model (completion).
# Builds the fuzzers with the address sanitizer (Clang; no libtorch needed). Prints a summary: inputs, branches reached,
# and the input that crashed, hung, broke an invariant or took too much memory. Inputs that reach new code are kept in
# build/fuzz-corpus for the next run.
#
#   scripts/fuzz.sh [--minutes 10] [TARGET...]      all targets unless some are named
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

minutes=10
targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --minutes)
        minutes=${2:?--minutes N}
        shift 2
        ;;
    -*)
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    *)
        targets+=("$1")
        shift
        ;;
    esac
done

scripts/build.sh asan fuzz_teacher_answers fuzz_inputs
status=0
for program in fuzz_teacher_answers fuzz_inputs; do
    mapfile -t all < <("build/asan/bin/$program" --list)
    chosen=()
    for target in "${all[@]}"; do
        if [ ${#targets[@]} = 0 ] || [[ " ${targets[*]} " == *" $target "* ]]; then
            chosen+=("$target")
        fi
    done
    [ ${#chosen[@]} -gt 0 ] || continue
    nice -n 10 python3 tests/fuzz/run.py --program "build/asan/bin/$program" --corpus build/fuzz-corpus \
        --seconds $((minutes * 60)) --jobs 1 "${chosen[@]}" || status=1
done
exit $status
