#!/usr/bin/env bash
# Configures and builds one preset: scripts/build.sh PRESET [TARGET…]. The compiler is CXX from the environment, or
# clang 19 if installed (setup.sh does that), or the system's compiler if it is new enough.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ $# = 0 ]; then
    echo "usage: scripts/build.sh PRESET [TARGET...]; presets: dev, release, asan, tsan, cuda" >&2
    exit 2
fi
preset=$1
shift

# GCC 12 miscompiles coroutines (docs/decisions/0002-compiler.md).
new_enough() {
    local macros clang gcc
    macros=$("$1" -dM -E -x c++ /dev/null 2>/dev/null) || return 1
    clang=$(awk '$2 == "__clang_major__" {print $3}' <<<"$macros")
    gcc=$(awk '$2 == "__GNUC__" {print $3}' <<<"$macros")
    if [ -n "$clang" ]; then [ "$clang" -ge 16 ]; else [ "${gcc:-0}" -ge 13 ]; fi
}

if [ -z "${CXX:-}" ]; then
    for candidate in clang++-19 c++; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            CXX=$candidate
            break
        fi
    done
    if [ -z "${CXX:-}" ]; then
        echo "build: no compiler found; Clang 16 or GCC 13 is needed, or newer: run scripts/setup.sh" >&2
        exit 1
    fi
fi
export CXX

# Compiling a file that includes libtorch takes up to 1.5 GB.
jobs=$(nproc)
memory_gb=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
max_jobs=$((memory_gb * 2 / 3))
if [ "$jobs" -gt "$max_jobs" ]; then jobs=$max_jobs; fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi

# ccache also finds results of other checkouts, even with the precompiled header (cmake/DistilldTargets.cmake).
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

cd "$root"
echo "build: preset $preset with $CXX, $jobs jobs"
if ! configured=$(cmake --preset "$preset" 2>&1); then
    printf '%s\n' "$configured" >&2
    exit 1
fi
if [ $# = 0 ]; then
    cmake --build --preset "$preset" -j "$jobs"
else
    cmake --build --preset "$preset" -j "$jobs" --target "$@"
fi
