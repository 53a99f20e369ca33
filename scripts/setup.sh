#!/usr/bin/env bash
# Installs what building, testing and the quickstart need: build packages with apt, libtorch into .deps/ from the
# Python package torch. Idempotent: what is there already is left alone and takes a second to find.
#
# pip's own settings hold (PIP_FIND_LINKS, PIP_INDEX_URL, pip.conf). Where pip finds no CPU build of torch there, it
# takes the CUDA build, which works without a GPU and without the CUDA toolkit but fills 5 GB.
#
#   DISTILLD_TORCH=/path      use this libtorch (2.6 or newer) and install none
#   CMAKE_PREFIX_PATH=/path   likewise, when it holds a TorchConfig.cmake
#   DISTILLD_SKIP_APT=1       install nothing with apt (packages come from elsewhere)
#   DISTILLD_SKIP_TEST_VENV=1 leave out the Python packages, and Prometheus, that only tests need
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
torch_version=2.13.0

say() { printf 'setup: %s\n' "$*"; }
die() {
    say "error: $*" >&2
    exit 1
}

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
    libsqlite3-dev
    libgtest-dev libgmock-dev
    python3 python3-venv curl openssl ca-certificates shellcheck
    fortunes perl-doc
)

install_packages() {
    local missing=() name status
    command -v apt-get >/dev/null || die "no apt-get here; install your system's packages for: ${packages[*]};" \
        "then set DISTILLD_SKIP_APT=1"
    for name in "${packages[@]}"; do
        status=$(dpkg-query -W -f='${Status}' "$name" 2>/dev/null || true)
        [[ $status == *" ok installed" ]] || missing+=("$name")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "apt packages: all ${#packages[@]} installed"
        return
    fi
    say "apt packages missing: ${missing[*]}"
    as_root apt-get update -q
    if [ "$os_id" = debian ] && [ "$os_codename" = bookworm ]; then enable_backports; fi
    # A machine that has just started may be busy with its own upgrades: wait for dpkg's lock.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=600 "${missing[@]}"
}

have_torch_elsewhere() {
    if [ -n "${DISTILLD_TORCH:-}" ]; then
        [ -e "$DISTILLD_TORCH/share/cmake/Torch/TorchConfig.cmake" ] ||
            die "DISTILLD_TORCH=$DISTILLD_TORCH has no share/cmake/Torch/TorchConfig.cmake"
        return 0
    fi
    local prefix
    local prefixes=${CMAKE_PREFIX_PATH:-}
    for prefix in ${prefixes//[:;]/ }; do
        [ -e "$prefix/share/cmake/Torch/TorchConfig.cmake" ] && return 0
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
        "$deps/venv/bin/pip" install -q "torch==$torch_version"
    fi
    local find_torch='import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))'
    ln -sfn "$("$deps/venv/bin/python" -c "$find_torch")" \
        "$deps/libtorch"
}

# Exported folders are checked against transformers, tokenizers and safetensors, the sinks against tensorboard and
# mlflow (which is the large one: about 600 MB with what it needs); ruff is for lint.sh.
install_test_python() {
    [ "${DISTILLD_SKIP_TEST_VENV:-}" = 1 ] && return
    make_venv "$deps/venv"
    local want=("torch==$torch_version" transformers tokenizers safetensors numpy pytest pytest-xdist pyyaml ruff
        tensorboard mlflow)
    if "$deps/venv/bin/python" -c 'import importlib.util as u, sys
names = "torch transformers tokenizers safetensors numpy pytest xdist yaml ruff tensorboard mlflow".split()
sys.exit(any(u.find_spec(n) is None for n in names))'; then
        say "test packages: all in .deps/venv"
        return
    fi
    say "test packages: installing ${want[*]} into .deps/venv"
    "$deps/venv/bin/pip" install -q "${want[@]}"
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
    say "prometheus: unpacking the package of that name into .deps/prometheus"
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
        as_root apt-get update -q || return 1
        (cd "$1" && apt-get download -q prometheus) || return 1
    fi
    dpkg-deb -x "$1"/prometheus_*.deb "$1/unpacked"
}

mkdir -p "$deps"
if [ "${DISTILLD_SKIP_APT:-}" = 1 ]; then say "apt: skipped"; else install_packages; fi
install_torch
install_test_python
install_prometheus
say "done"
