#!/usr/bin/env bash
# Installs the packages of scripts/package.sh in bare roots of Debian 12 and 13 and uses them: versions, a complete
# training job through the service, manual pages, completions. After a purge nothing may be left. Then runs the same job
# from the .tar.gz, unpacked in its own folder. Prints one line per root; exit code 0 only if all passed. Needs root and
# debootstrap. Takes about a minute per suite, and one or two more if its root must be made first.
#
#   --suite NAME        only this one: bookworm or trixie; may be repeated
#   --packages FOLDER   the folder of the packages (default build/packages)
#   --keep              keep the roots at the end, and print their folder
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=check-packages
# shellcheck source=scripts/debian_root.sh
. "$root/scripts/debian_root.sh"
suites=()
packages=$root/build/packages
keep=0
while [ $# -gt 0 ]; do
    case $1 in
        --suite) suites+=("${2:?--suite takes a name}"); shift ;;
        --packages) packages=$(realpath -e -- "${2:?--packages takes a folder}") || exit 2; shift ;;
        --keep) keep=1 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "check-packages: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)
need_for_roots
for pattern in 'distilld_*.deb' 'distilld-worker_*.deb' 'distilld-*.tar.gz'; do
    [ "$(find "$packages" -maxdepth 1 -name "$pattern" | wc -l)" = 1 ] ||
        die "$packages must hold one $pattern; scripts/package.sh makes it"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/distilld-check-packages-XXXXXX")
trap '[ "$keep" = 1 ] && say "the roots are in $work" || rm -rf "$work"' EXIT

# The script that runs in the root.
write_script() {
    cat >"$1/check.sh" <<'SCRIPT'
set -euo pipefail
version=$1
fail() { echo "FAILED: $*" >&2; exit 1; }
step() { echo "-- $*"; }

# run_job FOLDER: runs a job with the distilld in PATH.
run_job() {
    mkdir -p "$1"
    cd "$1"
    for i in $(seq 60); do
        printf '{"text": "Line %d of a text that a very small model is to learn from, again and again."}\n' "$i"
    done >train.jsonl
    # The packages' own example, made small, and reading bytes because there is no tokenizer here.
    sed -z 's/,[[:space:]]*"tokenizer": "tokenizer"//' "$example" |
        sed -e 's/"hidden_size": [0-9]*/"hidden_size": 32/; s/"intermediate_size": [0-9]*/"intermediate_size": 64/' \
            -e 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/; s/"vocab_size": [0-9]*/"vocab_size": 257/' \
            -e 's/"sequence_length": [0-9]*/"sequence_length": 24/' \
            -e 's/"max_steps": [0-9]*/"max_steps": 12/; s/"warmup_steps": [0-9]*/"warmup_steps": 2/' \
            -e 's|data/[a-z]*.jsonl|train.jsonl|g; s|"out/scratch"|"student"|' >spec.json
    distilld serve --listen 127.0.0.1:0 --data-dir service >serve.out 2>serve.err &
    service=$!
    for _ in $(seq 300); do
        url=$(sed -n 's/.*listening on //p' serve.out)
        [ -z "$url" ] || break
        kill -0 $service 2>/dev/null || { cat serve.err; fail "distilld serve has ended"; }
        sleep 0.1
    done
    distilld healthcheck --server "$url" || fail "healthcheck"
    # The service resolves relative paths from its working folder.
    id=$(distilld jobs submit spec.json --server "$url" -o json | grep -o 'job-[0-9a-f]*' | head -n 1)
    timeout 300 distilld jobs watch "$id" --server "$url" >watch.out 2>&1 ||
        { cat watch.out serve.err; fail "the job did not succeed"; }
    [ -s student/model.safetensors ] && [ -s student/config.json ] || fail "there is no student"
    kill $service
    wait $service || fail "distilld serve ended with $?"
    tail -n 1 watch.out
    cd /
}

step "apt-get install"
apt-get update -qq
if ! apt-get install -y -qq --no-install-recommends /packages/*.deb >/install.log 2>&1; then
    tail -n 20 /install.log
    fail install
fi
[ "$(distilld --version)" = "distilld $version" ] || fail "distilld says $(distilld --version)"
[ "$(distilld-worker --version)" = "distilld-worker $version" ] || fail "the worker says $(distilld-worker --version)"
ldd /usr/bin/distilld /usr/bin/distilld-worker | grep 'not found' && fail "libraries are missing"

step "a job through the installed service"
example=/usr/share/doc/distilld/examples/train-from-scratch.json
run_job /job

step "files"
for page in distilld distilld-worker; do
    gzip -dc "/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH OPTIONS' || fail "the manual page of $page"
    [ -s "/usr/share/doc/$page/copyright" ] || fail "the copyright file of $page"
done
completed=$(source /usr/share/bash-completion/completions/distilld && COMP_WORDS=(distilld jobs li) COMP_CWORD=2 &&
    _distilld && echo "${COMPREPLY[*]}")
[ "$completed" = list ] || fail "bash completes 'distilld jobs li' by '$completed'"
grep -q '^ExecStart=/usr/bin/distilld serve' /usr/lib/systemd/system/distilld.service || fail "the unit"
[ -s /etc/default/distilld ] || fail "/etc/default/distilld"

step "purge"
mkdir -p /var/lib/private/distilld /var/lib/distilld  # systemd would have made them
apt-get purge -y -qq distilld distilld-worker >/purge.log 2>&1 || { tail -n 20 /purge.log; fail purge; }
left=$(find / -xdev -name '*distilld*' -not -path '/proc/*' -not -path '/packages/*' -not -path '/job/*' \
    -not -path '/tmp/*' -not -path '/var/log/*')
[ -z "$left" ] || fail "purge leaves: $left"

step "the .tar.gz, in a folder of its own"
mkdir -p "/opt/some where"
tar -xzf /packages/*.tar.gz -C "/opt/some where"
folder=$(echo "/opt/some where"/distilld-*)
PATH="$folder/bin:$PATH"
[ "$(command -v distilld)" = "$folder/bin/distilld" ] || fail "PATH"
example=$folder/share/doc/distilld/examples/train-from-scratch.json
run_job /job-of-tar
SCRIPT
}

version=$(dpkg-deb -f "$packages"/distilld_*.deb Version)
failed=0
for suite in "${suites[@]}"; do
    started=$SECONDS
    say "$suite"
    fresh_root "$suite" "$work/$suite"
    mkdir "$work/$suite/packages"
    cp "$packages"/*.deb "$packages"/*.tar.gz "$work/$suite/packages/"
    write_script "$work/$suite"
    if in_root "$work/$suite" bash /check.sh "$version" 2>&1 | sed 's/^/    /'; then
        say "$suite: passed, $((SECONDS - started)) s"
    else
        say "$suite: FAILED, $((SECONDS - started)) s"
        failed=1
    fi
    [ "$keep" = 1 ] || rm -rf "${work:?}/$suite"
done
exit $failed
