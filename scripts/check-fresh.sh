#!/usr/bin/env bash
# What README promises of a fresh machine, in bare roots of Debian 12 and 13: a clone of the present commit,
# scripts/setup.sh, then both of its commands. Prints how long each took, and what the quickstart came to. Exit code 0
# only if all ended well. Needs root and debootstrap, 15 GB of disk where pip takes torch's CUDA build, and an hour or
# two on two cores.
#
#   --suite NAME      only that one: bookworm or trixie; may be repeated
#   --quickstart      scripts/quickstart.sh whole, in place of its --quick, which only shows that it runs
#   --tests WHICH     what is run of scripts/test.sh: none, fast (default) or all
#   --ccache FOLDER   lend the roots this cache of compiled files; the build's time is then not that of a fresh machine
#   --keep            leave the roots as they are at the end, and say where
#
# pip's settings of this machine (PIP_* and configuration files) hold in the roots, with the local folders they name.
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
