#!/usr/bin/env bash
# Runs the checks that are not tests: format and clang-tidy of C++, shell scripts, Python, and the rules over the whole
# tree (tests/unit/repo). Exit code 0 only if nothing was found. scripts/setup.sh installs what it needs.
#
#   --changed   only files that differ from the branch main (on main itself, from the previous commit) or are untracked
#   --fast      clang-tidy only with the checks of coroutines and moves, without libtorch, in batches of files: a
#               minute or two
#   --fix       format C++ and Python instead of complaining
#   --no-rules  without the rules and the format of C++, which are tests of the release tree too
#
# All checks of clang-tidy over all files take about a quarter of an hour on two cores. Passed files are remembered next
# to the compiler's cache, so the next run checks only what has changed since.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
fast_checks='-*,misc-coroutine-hostile-raii,cppcoreguidelines-avoid-capturing-lambda-coroutines,bugprone-use-after-move'
changed=0
fast=0
fix=0
rules=1
while [ $# -gt 0 ]; do
    case $1 in
        --changed) changed=1 ;;
        --fast) fast=1 ;;
        --fix) fix=1 ;;
        --no-rules) rules=0 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "lint: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done

failed=()
check() {
    local what=$1
    shift
    if ! "$@"; then
        failed+=("$what")
        echo "lint: $what: see above" >&2
    fi
}

# git, even if another user owns the checkout (in a container).
in_git() { git -c safe.directory="$root" "$@"; }

list_files() {
    if [ "$changed" = 0 ]; then
        python3 -c 'import sys; sys.path.insert(0, "tests/unit/repo"); import tree; print("\n".join(tree.files()))'
        return
    fi
    local base branch
    base=HEAD
    for branch in main origin/main; do
        if in_git rev-parse -q --verify "$branch" >/dev/null; then
            base=$(in_git merge-base HEAD "$branch")
            break
        fi
    done
    if [ "$base" = "$(in_git rev-parse HEAD)" ] && in_git rev-parse -q --verify HEAD~1 >/dev/null; then base=HEAD~1; fi
    {
        in_git diff --name-only --diff-filter=d "$base"
        in_git ls-files --others --exclude-standard
    } | sort -u
}

mapfile -t files < <(list_files)
if [ "$changed" = 0 ] && [ ${#files[@]} = 0 ]; then
    echo "lint: no files were found" >&2
    exit 1
fi
cpp=() shell=() python=()
for file in "${files[@]}"; do
    case $file in
        *.cpp | *.hpp) cpp+=("$file") ;;
        *.sh | *.sbatch | .ci/run) shell+=("$file") ;;
        *.py) python+=("$file") ;;
    esac
done
echo "lint: ${#cpp[@]} C++ files, ${#shell[@]} of shell, ${#python[@]} of Python"

ruff=$root/.deps/venv/bin/ruff
[ -x "$ruff" ] || ruff=ruff
if [ ${#python[@]} -gt 0 ]; then
    if [ "$fix" = 1 ]; then "$ruff" format -q "${python[@]}"; fi
    check "ruff check" "$ruff" check -q "${python[@]}"
    check "ruff format (scripts/lint.sh --fix formats)" "$ruff" format -q --check "${python[@]}"
fi
if [ ${#shell[@]} -gt 0 ]; then check shellcheck shellcheck -x "${shell[@]}"; fi
if [ "$rules" = 1 ]; then
    for rule in include_rules style_rules names docs dashboards version; do
        check "$rule" python3 "tests/unit/repo/${rule}_test.py" -q
    done
fi
if [ ${#cpp[@]} -gt 0 ]; then
    if [ "$fix" = 1 ]; then clang-format-19 -i "${cpp[@]}"; fi
    if [ "$rules" = 1 ]; then
        check "clang-format (scripts/lint.sh --fix formats)" clang-format-19 --dry-run --Werror "${cpp[@]}"
    fi

    tidied=()  # all
    if [ "$changed" = 1 ]; then tidied=("${cpp[@]}"); fi
    # A separate build folder without precompiled headers and batches, which would hide a missing include. The fast
    # checks do look at batches, in a quarter of the time; own_includes_rule finds most of what those hide.
    torch=OFF
    if [ "$fast" = 0 ] && { [ -e .deps/libtorch ] || [ -n "${DISTILLD_TORCH:-}" ]; }; then torch=ON; fi
    if ! configured=$(CXX=clang++-19 cmake -S . -B build/lint -G Ninja -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
        -DDISTILLD_UNITY=OFF -DDISTILLD_WITH_TORCH=$torch 2>&1); then
        printf '%s\n' "$configured" >&2
        failed+=("cmake")
    elif [ "$fast" = 1 ]; then
        check clang-tidy python3 scripts/tidy.py build/lint --batch 20 --only-with '\bco_(await|return|yield)\b' \
            --checks="$fast_checks" "${tidied[@]}"
    else
        check clang-tidy python3 scripts/tidy.py build/lint "${tidied[@]}"
    fi
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'lint: failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "lint: nothing found"
