#!/usr/bin/env bash
# Fuzzes what the teacher client makes of answers for minutes a protocol, one after the other at low priority; CI does
# half a minute of each. Builds the fuzzer with the address sanitizer (Clang; no libtorch needed). Prints what ran:
# inputs, branches reached, and the input that did it where one crashed, hung or took too much memory. What reaches
# further is kept in build/fuzz-corpus, and the next run begins with it.
#
#   scripts/fuzz.sh [--minutes 10] [PROTOCOL...]      all protocols unless some are named
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

minutes=10
protocols=()
while [ $# -gt 0 ]; do
    case $1 in
    --minutes)
        minutes=${2:?--minutes N}
        shift 2
        ;;
    -*)
        sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    *)
        protocols+=("$1")
        shift
        ;;
    esac
done

scripts/build.sh asan fuzz_teacher_answers
arguments=(--program build/asan/bin/fuzz_teacher_answers --corpus build/fuzz-corpus)
arguments+=(--seconds $((minutes * 60)) --jobs 1)
exec nice -n 10 python3 tests/fuzz/run.py "${arguments[@]}" "${protocols[@]}"
