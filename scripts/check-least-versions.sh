#!/usr/bin/env bash
# Builds and unit-tests with the minimum versions in README, each in a bare root of the Debian that has it. Prints one
# line per row; exit code 0 only if all passed. Needs root and debootstrap. On two cores a row takes half an hour
# without libtorch and an hour with it.
#
#   --row NAME        only this one; may be repeated:
#       gcc-13        g++ 13 and Boost 1.83 of Debian 13
#       clang-16      clang 16 with the libraries of Debian 12 (Boost 1.83 of its backports)
#       torch-2.6     libtorch 2.6 as packaged by Debian 13 (libtorch-dev). The Python package torch==2.6.0 fails if
#                     pip installs its CUDA build: that has GCC's old C++ ABI, with which no library of Debian links
#   --without-torch   leave out what needs libtorch (not for torch-2.6)
#   --ccache FOLDER   give the roots this compiler cache
#   --keep            keep the roots at the end, and print their folder
#
# The other rows of the table need no script: Debian 12 has exactly these versions (simdjson 3.0, prometheus-cpp 1.0,
# spdlog 1.10, CLI11 2.1, toml++ 3.3, SQLite 3.40, GoogleTest 1.12), so every test run there checks them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=check-least-versions
# shellcheck source=scripts/debian_root.sh
. "$root/scripts/debian_root.sh"
rows=()
torch=ON
cache=
keep=0
while [ $# -gt 0 ]; do
    case $1 in
        --row) rows+=("${2:?--row takes a name}"); shift ;;
        --without-torch) torch=OFF ;;
        --ccache) cache=$(realpath -e -- "${2:?--ccache takes a folder}") || exit 2; shift ;;
        --keep) keep=1 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "check-least-versions: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done
[ ${#rows[@]} -gt 0 ] || rows=(gcc-13 clang-16 torch-2.6)
need_for_roots
lend_pip_settings
lend_npm_settings
[ -z "$cache" ] || lend_ccache "$cache"

# This checkout's libtorch, for the rows that do not test another one: it runs on any Debian.
own_torch=${DISTILLD_TORCH:-$root/.deps/libtorch}

work=$(mktemp -d "${TMPDIR:-/tmp}/distilld-check-least-XXXXXX")
trap '[ "$keep" = 1 ] && say "the roots are in $work" || rm -rf "$work"' EXIT
failed=0
for row in "${rows[@]}"; do
    with_torch=$torch
    packages=()
    linker_flags=
    case $row in
        # libtorch's own libstdc++.so is older than the one that Debian 13's libraries (libgtest.a too) were built with
        # and that programs load. Link with the newer one.
        gcc-13)
            suite=trixie compiler=g++-13 packages=(g++-13)
            linker_flags="-Wl,--no-as-needed /usr/lib/$(uname -m)-linux-gnu/libstdc++.so.6 -Wl,--as-needed"
            ;;
        clang-16) suite=bookworm compiler=clang++-16 packages=(clang-16 lld) ;;
        torch-2.6) suite=trixie compiler=clang++-19 packages=(clang-19 lld-19 libtorch-dev) with_torch=ON ;;
        *) die "there is no row $row; --help lists them" ;;
    esac
    started=$SECONDS
    folder=$work/$row
    fresh_root "$suite" "$folder"
    git -c safe.directory="$root" clone -q "$root" "$folder/distilld"
    mounts=("${root_mounts[@]}")
    environment=("${root_environment[@]}")
    root_environment+=("CXX=$compiler" "LDFLAGS=$linker_flags")
    if [ "$row" = torch-2.6 ]; then
        root_environment+=("DISTILLD_TORCH=/usr")
    elif [ "$with_torch" = ON ]; then
        own_torch=$(realpath -e -- "$own_torch")
        root_mounts+=("$own_torch")
        root_environment+=("DISTILLD_TORCH=$own_torch")
    fi
    cat >"$folder/check.sh" <<'SCRIPT'
set -euo pipefail
with_torch=$1
shift
cd /distilld
# Install it before setup.sh checks for libtorch.
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
# Install packages only: any folder of this shape passes setup.sh's check for libtorch.
if [ "$with_torch" = OFF ]; then
    mkdir -p /no-torch/share/cmake/Torch
    : >/no-torch/share/cmake/Torch/TorchConfig.cmake
    DISTILLD_TORCH=/no-torch DISTILLD_SKIP_TEST_VENV=1 scripts/setup.sh
else
    DISTILLD_SKIP_TEST_VENV=1 scripts/setup.sh
fi
"$CXX" --version | head -n 1
cmake --preset release -DDISTILLD_WITH_TORCH="$with_torch" >/dev/null
scripts/build.sh release all unit_tests
ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)" -E '^repo_'
SCRIPT
    if in_root "$folder" bash /check.sh "$with_torch" "${packages[@]}" >"$folder/log" 2>&1; then
        grep -E '^(clang|g\+\+|Debian)|tests passed' "$folder/log" | sed 's/^/    /'
        say "$row: passed (libtorch: $with_torch), $((SECONDS - started)) s"
    else
        grep -E 'error|FAILED|\*\*\*' "$folder/log" | head -n 20 | sed 's/^/    /'
        tail -n 20 "$folder/log" | sed 's/^/    /'
        say "$row: FAILED (libtorch: $with_torch), $((SECONDS - started)) s"
        failed=1
    fi
    root_mounts=("${mounts[@]}")
    root_environment=("${environment[@]}")
    [ "$keep" = 1 ] || rm -rf "${folder:?}"
done
exit $failed
