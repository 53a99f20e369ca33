#!/usr/bin/env bash
# Builds and runs all tests, from a fresh machine: unit tests and simulations, end-to-end tests (pytest), then the unit
# tests under the address and the thread sanitizer. Ends with one line "N passed, N failed" over all of them; exit code
# 0 only if nothing failed.
#
#   --fast    without the sanitizers
#   -k EXPR   end-to-end tests whose names match (pytest's -k)
#
# Results as JUnit XML lie in build/test-results/.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
results=$root/build/test-results
fast=0
pytest_filter=()
while [ $# -gt 0 ]; do
    case $1 in
        --fast) fast=1 ;;
        -k) pytest_filter=(-k "${2:?-k takes an expression}"); shift ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "test: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done

started=$SECONDS
say() { printf '\n== %s (%d min %02d s)\n' "$*" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)); }

# A phase that cannot even be built counts as one failed test.
broken() {
    mkdir -p "$results/$1"
    printf '%s\n' "$2" >"$results/$1/broken.txt"
    printf 'test: %s\n' "$2" >&2
}

# unit PHASE PRESET: builds a preset and runs what ctest knows of it.
unit() {
    local phase=$1 preset=$2
    say "$phase: build"
    if ! scripts/build.sh "$preset"; then
        broken "$phase" "$phase: the build failed"
        return
    fi
    say "$phase: run"
    mkdir -p "$results/$phase/cases"
    # Each GoogleTest program writes its cases there; ctest itself only knows programs.
    GTEST_OUTPUT="xml:$results/$phase/cases/" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
        -j "$(nproc)" --output-junit "$results/$phase/ctest.xml"
}

end_to_end() {
    local python=$root/.deps/venv/bin/python
    if [ ! -x "$python" ]; then
        broken e2e "end-to-end tests: .deps/venv is missing; run scripts/setup.sh"
        return
    fi
    say "end-to-end tests"
    mkdir -p "$results/e2e"
    DISTILLD_BIN_DIR=$root/build/release/bin "$python" -m pytest tests/e2e -ra -q "${pytest_filter[@]}" \
        --junitxml "$results/e2e/pytest.xml" -o junit_family=xunit2 || true
    [ -e "$results/e2e/pytest.xml" ] || broken e2e "end-to-end tests: pytest did not run"
}

rm -rf "$results"
mkdir -p "$results"
if ! scripts/setup.sh; then
    broken setup "scripts/setup.sh failed"
else
    unit unit release
    end_to_end
    if [ "$fast" = 0 ]; then
        # libtorch itself is not instrumented: containers that cross its border would look overflown.
        export ASAN_OPTIONS=detect_container_overflow=0:detect_odr_violation=0:strict_init_order=1
        export LSAN_OPTIONS=suppressions=$root/tests/support/leaks.txt:print_suppressions=0
        export UBSAN_OPTIONS=print_stacktrace=1
        unit asan asan
        unset ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS
        export TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1
        unit tsan tsan
        unset TSAN_OPTIONS
    fi
fi

say "summary"
exec python3 "$root/tests/support/count_results.py" "$results"
