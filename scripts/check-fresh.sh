#!/usr/bin/env bash
# Checks README's instructions for a fresh machine in bare roots of Debian 12 and 13: clones the current commit, runs
# scripts/setup.sh and then README's two commands. Prints how long each took and the quickstart's result. Exit code 0
# only if all succeeded. Needs root and debootstrap, 15 GB of disk if pip installs torch's CUDA build, and an hour or
# two on two cores.
#
#   --suite NAME      only this one: bookworm or trixie; may be repeated
#   --quickstart      run the whole scripts/quickstart.sh instead of --quick, which only shows that it works
#   --tests WHICH     which part of scripts/test.sh to run: none, fast (default) or all
#   --ccache FOLDER   give the roots this compiler cache; the build then takes less time than on a fresh machine
#   --keep            keep the roots at the end, and print their folder
#
# The roots use this machine's pip settings (PIP_* and configuration files), with the local folders that they name.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=check-fresh
# shellcheck source=scripts/debian_root.sh
. "$root/scripts/debian_root.sh"
suites=()
tests=fast
quickstart="scripts/quickstart.sh --quick"
cache=
keep=0
while [ $# -gt 0 ]; do
    case $1 in
        --suite) suites+=("${2:?--suite takes a name}"); shift ;;
        --quickstart) quickstart=scripts/quickstart.sh ;;
        --tests) tests=${2:?--tests takes none, fast or all}; shift ;;
        --ccache) cache=$(realpath -e -- "${2:?--ccache takes a folder}") || exit 2; shift ;;
        --keep) keep=1 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "check-fresh: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done
case $tests in none | fast | all) ;; *) echo "check-fresh: --tests takes none, fast or all" >&2; exit 2 ;; esac
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)
need_for_roots

lend_pip_settings
lend_npm_settings
[ -z "$cache" ] || lend_ccache "$cache"

work=$(mktemp -d "${TMPDIR:-/tmp}/distilld-check-fresh-XXXXXX")
trap '[ "$keep" = 1 ] && say "the roots are in $work" || rm -rf "$work"' EXIT
memory_gb=$(awk '/^MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
say "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $memory_gb GB"
failed=0
for suite in "${suites[@]}"; do
    fresh_root "$suite" "$work/$suite"
    git -c safe.directory="$root" clone -q "$root" "$work/$suite/distilld"
    steps=("scripts/setup.sh" "scripts/build.sh release distilld distilld-worker" "$quickstart")
    case $tests in
        fast) steps+=("scripts/test.sh --fast") ;;
        all) steps+=("scripts/test.sh") ;;
    esac
    for step in "${steps[@]}"; do
        started=$SECONDS
        if in_root "$work/$suite" bash -c "cd /distilld && exec $step" >"$work/$suite/log" 2>&1; then
            say "$suite: $step: $((SECONDS - started)) s"
            grep -E '^setup: .*(GB|MB)|^ +(held-out loss|teacher <|tokens/s|teacher time)' "$work/$suite/log" |
                sed 's/^ */    /' || true
        else
            tail -n 40 "$work/$suite/log" | sed 's/^/    /'
            say "$suite: $step: FAILED after $((SECONDS - started)) s"
            failed=1
            break
        fi
    done
    say "$suite: .deps fills $(du -sm "$work/$suite/distilld/.deps" | cut -f1) MB, build $(du -sm \
        "$work/$suite/distilld/build" | cut -f1) MB"
    [ "$keep" = 1 ] || rm -rf "${work:?}/$suite"
done
exit $failed
