#!/usr/bin/env bash
# Builds and runs all tests, from a fresh machine: end-to-end tests (pytest), unit tests and simulations under the
# address sanitizer, those of threaded code also under the thread sanitizer, and scripts/lint.sh --fast. Ends with one
# line "N passed, N failed" over all of them; exit code 0 only if nothing failed.
#
# The timing test runs alone. While the other end-to-end tests run, which mostly wait, the script runs the unit tests
# of the release tree, builds the trees of the sanitizers, runs the linter, and fuzzes.
#
#   --fast    without the sanitizers: unit tests and simulations run in the release tree
#   -k EXPR   only end-to-end tests with matching names (pytest's -k)
#
# build/test-results/ gets the results as JUnit XML, and phases.json: the seconds and CPU-seconds of each phase, the ten
# slowest tests, and the ten end-to-end tests with most CPU-seconds.
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
most_jobs=$((3 * $(nproc)))  # most tests mostly wait
# step NAME COMMAND…: runs the command, and records its seconds and CPU-seconds. Steps may run at the same time.
step() {
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s (%d min %02d s)\n' "$name" $(((began - started) / 60)) $(((began - started) % 60))
    (
        "$@"
        code=$?
        # Use this subshell, which has no other children; $(…) would be another one, without any.
        times >"$results/times of $name"
        awk -F '[ms ]+' -v name="$name" -v wall=$((SECONDS - began)) \
            'NR == 2 {printf "%s\t%d\t%.1f\n", name, wall, $1 * 60 + $2 + $3 * 60 + $4}' "$results/times of $name" \
            >>"$results/phases.tsv"
        rm "$results/times of $name"
        exit "$code"
    )
}

# A phase whose build fails counts as one failed test.
broken() {
    mkdir -p "$results/$1"
    printf '%s\n' "$2" >"$results/$1/broken.txt"
    printf 'test: %s\n' "$2" >&2
}

# build NAME PRESET TARGET…: builds targets of a preset.
build() {
    local name=$1
    shift
    step "$name build" scripts/build.sh "$@" || broken "$name" "$name: the build failed"
}

# run_units NAME BUILT PRESET JOBS ARGUMENT…: runs the tests of a preset, unless its build failed, which is named BUILT.
# The arguments, for ctest, say which tests.
run_units() {
    local name=$1 built=$2 preset=$3 jobs=$4
    shift 4
    [ ! -e "$results/$built/broken.txt" ] || return
    mkdir -p "$results/$name/cases"
    # Each GoogleTest program writes its cases there, because ctest knows only programs. Some wait for seconds.
    GTEST_OUTPUT="xml:$results/$name/cases/" step "$name run" ctest --test-dir "build/$preset" --output-on-failure \
        --no-tests=error "$@" -j "$jobs" --output-junit "$results/$name/ctest.xml"
}

# end_to_end NAME ARGUMENT…: runs tests with pytest; the result is pytest-NAME.xml. Finding no tests is not a failure,
# because -k may exclude all.
end_to_end() {
    local name=$1
    shift
    if [ ! -x .deps/venv/bin/python ]; then
        broken e2e "end-to-end tests: .deps/venv is missing; run scripts/setup.sh"
        return
    fi
    mkdir -p "$results/e2e"
    # Plugins that other packages bring cost each pytest process seconds.
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 DISTILLD_BIN_DIR=$root/build/release/bin step "$name" \
        .deps/venv/bin/python -m pytest -p xdist tests/e2e -ra -q "$@" "${pytest_filter[@]}" \
        --junitxml "$results/e2e/pytest-$name.xml" -o junit_family=xunit2
    [ -e "$results/e2e/pytest-$name.xml" ] || broken e2e "$name: pytest did not run"
}

lint() {
    mkdir -p "$results/lint"
    if step lint scripts/lint.sh --fast --no-rules; then
        echo passed >"$results/lint/passed.txt"
    else
        broken lint "scripts/lint.sh --fast found something"
    fi
}

# The work that runs during the end-to-end tests, at the lowest priority but for tests. One thing at a time: compilers
# that take turns on a core need more CPU-seconds.
beside_the_tests() {
    if [ "$fast" = 0 ]; then run_units unit unit release "$most_jobs" -L unsanitized; fi
    renice -n 19 "$BASHPID" >/dev/null
    if [ "$fast" = 0 ]; then
        build asan asan unit_tests
        build tsan tsan unit_tests
    fi
    lint
    if [ "$fast" = 0 ]; then sanitized_asan fuzz "$most_jobs" -L fuzz; fi
}

# In a subshell each, for their environment. sanitized_asan NAME JOBS ARGUMENT…: see run_units.
sanitized_asan() (
    # libtorch is not instrumented, so containers that cross its border would seem to overflow.
    # A test requests more memory than can exist, as a worker may: that must be an ordinary error.
    export ASAN_OPTIONS=allocator_may_return_null=1:detect_container_overflow=0
    ASAN_OPTIONS+=:detect_odr_violation=0:strict_init_order=1
    export LSAN_OPTIONS=suppressions=$root/tests/support/leaks.txt:print_suppressions=0
    export UBSAN_OPTIONS=print_stacktrace=1
    local name=$1
    shift
    run_units "$name" asan asan "$@"
)

sanitized_tsan() (
    export TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=0:second_deadlock_stack=1
    run_units tsan tsan tsan "$most_jobs"
)

# Each process of pytest would compile all tests again.
unset PYTHONDONTWRITEBYTECODE

rm -rf "$results"
mkdir -p "$results"
if ! step setup scripts/setup.sh; then
    broken setup "scripts/setup.sh failed"
else
    if [ "$fast" = 0 ]; then
        build unit release all unsanitized_tests
    else
        build unit release all unit_tests
        run_units unit unit release "$most_jobs"
    fi
    end_to_end "e2e timing" -m timing
    beside_the_tests >"$results/beside.log" 2>&1 &
    # Tests of one file stay together, because they share expensive fixtures; tests/e2e/conftest.py orders the files.
    end_to_end "e2e" -m "not timing" -n "$most_jobs" --dist loadfile --no-loadscope-reorder
    wait
    cat "$results/beside.log"
    if [ "$fast" = 0 ]; then
        sanitized_tsan >"$results/tsan.log" 2>&1 &
        sanitized_asan asan "$most_jobs" -LE fuzz
        wait
        cat "$results/tsan.log"
    fi
fi
printf 'all\t%d\t0\n' $((SECONDS - started)) >>"$results/phases.tsv"

printf '\n== summary\n'
python3 tests/support/write_phases.py "$results"
exec python3 "$root/tests/support/count_results.py" "$results"
