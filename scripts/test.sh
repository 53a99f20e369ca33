#!/usr/bin/env bash
# Builds and runs all tests, from a fresh machine: end-to-end tests (pytest), unit tests and simulations under the
# address sanitizer, those of code with threads under the thread sanitizer too, and scripts/lint.sh --fast. Ends with
# one line "N passed, N failed" over all of them; exit code 0 only if nothing failed.
#
#   --fast    without the sanitizers: unit tests and simulations run in the release tree
#   -k EXPR   end-to-end tests whose names match (pytest's -k)
#
# Results as JUnit XML, and the seconds and CPU-seconds of each phase with the ten slowest tests (phases.json), lie in
# build/test-results/.
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
phase=
phase_started=$SECONDS
phase_cpu=0
# Sets cpu to the CPU-seconds of all children that have ended. Not by $(…): a subshell has no children yet.
count_cpu() {
    times >"$results/times"
    cpu=$(tail -n 1 "$results/times" | awk -F '[ms ]+' '{print $1 * 60 + $2 + $3 * 60 + $4}')
}
# finish_phase: writes down what the present phase took.
finish_phase() {
    local cpu
    count_cpu
    if [ -n "$phase" ]; then
        printf '%s\t%d\t%s\n' "$phase" $((SECONDS - phase_started)) "$(awk "BEGIN {print $cpu - $phase_cpu}")" \
            >>"$results/phases.tsv"
    fi
    phase=
    phase_cpu=$cpu
}
# begin NAME: the next phase.
begin() {
    finish_phase
    phase=$1
    phase_started=$SECONDS
    printf '\n== %s (%d min %02d s)\n' "$1" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60))
}
# A phase that cannot even be built counts as one failed test.
broken() {
    mkdir -p "$results/$1"
    printf '%s\n' "$2" >"$results/$1/broken.txt"
    printf 'test: %s\n' "$2" >&2
}

# unit NAME PRESET LABEL TARGET…: builds targets of a preset and runs the tests with this label ("": all).
unit() {
    local name=$1 preset=$2 label=$3
    shift 3
    begin "$name build"
    if ! scripts/build.sh "$preset" "$@"; then
        broken "$name" "$name: the build failed"
        return
    fi
    begin "$name run"
    mkdir -p "$results/$name/cases"
    # Each GoogleTest program writes its cases there; ctest itself only knows programs.
    GTEST_OUTPUT="xml:$results/$name/cases/" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
        ${label:+-L "$label"} -j "$(nproc)" --output-junit "$results/$name/ctest.xml"
}

# pytest_run NAME ARGUMENT…: end-to-end tests, with NAME.xml as the result. No test at all is no failure: -k may say so.
pytest_run() {
    local name=$1
    shift
    DISTILLD_BIN_DIR=$root/build/release/bin .deps/venv/bin/python -m pytest tests/e2e -ra -q "$@" \
        "${pytest_filter[@]}" --junitxml "$results/e2e/$name.xml" -o junit_family=xunit2 || true
    [ -e "$results/e2e/$name.xml" ] || broken e2e "end-to-end tests: pytest did not run"
}

end_to_end() {
    if [ ! -x .deps/venv/bin/python ]; then
        broken e2e "end-to-end tests: .deps/venv is missing; run scripts/setup.sh"
        return
    fi
    mkdir -p "$results/e2e"
    begin "e2e timing"
    pytest_run pytest-timing -m timing
    begin "e2e"
    # These tests mostly wait: what the sanitizers need is built meanwhile, as far as it comes, at low priority. The
    # asan phase builds the rest, and says what does not build.
    local ahead=
    if [ "$fast" = 0 ]; then
        nice -n 10 scripts/build.sh asan unit_tests >"$results/asan-ahead.log" 2>&1 &
        ahead=$!
    fi
    # A file's tests stay together: they share what is expensive.
    pytest_run pytest -m "not timing" -n 2 --dist loadfile
    [ -z "$ahead" ] || { begin "asan build ahead"; wait "$ahead" || true; }
}

lint() {
    begin "lint"
    mkdir -p "$results/lint"
    if scripts/lint.sh --fast; then
        echo passed >"$results/lint/passed.txt"
    else
        broken lint "scripts/lint.sh --fast found something"
    fi
}

rm -rf "$results"
mkdir -p "$results"
begin setup
if ! scripts/setup.sh; then
    broken setup "scripts/setup.sh failed"
else
    if [ "$fast" = 0 ]; then
        unit unit release unsanitized all unsanitized_tests
    else
        unit unit release "" all unit_tests
    fi
    end_to_end
    if [ "$fast" = 0 ]; then
        # libtorch itself is not instrumented: containers that cross its border would look overflown.
        # A test asks for more memory than there can be, as a worker may: that is to be an error like any other.
        export ASAN_OPTIONS=allocator_may_return_null=1:detect_container_overflow=0
        ASAN_OPTIONS+=:detect_odr_violation=0:strict_init_order=1
        export LSAN_OPTIONS=suppressions=$root/tests/support/leaks.txt:print_suppressions=0
        export UBSAN_OPTIONS=print_stacktrace=1
        unit asan asan "" unit_tests
        unset ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS
        export TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=0:second_deadlock_stack=1
        unit tsan tsan "" unit_tests
        unset TSAN_OPTIONS
    fi
    lint
fi
finish_phase

printf '\n== summary\n'
rm -f "$results/times"
python3 tests/support/write_phases.py "$results"
exec python3 "$root/tests/support/count_results.py" "$results"
