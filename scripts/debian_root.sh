# shellcheck shell=bash
# Bare Debian roots for experiments; sourced by check-packages.sh, check-fresh.sh and check-least-versions.sh, which set
# `self` to their name. debootstrap makes them from the machine's own Debian source (same server and key, only the suite
# differs). They are kept in build/roots/ (about 350 MB per suite) and copied for each use. Needs root.
# shellcheck disable=SC2154  # self and root are the sourcing script's

say() { printf '%s: %s\n' "$self" "$*"; }
die() {
    printf '%s: %s\n' "$self" "$*" >&2
    exit 1
}

need_for_roots() {
    local tool
    [ "$(id -u)" = 0 ] || die "this needs root"
    for tool in debootstrap unshare chroot; do
        command -v "$tool" >/dev/null || die "$tool is missing: apt-get install debootstrap util-linux coreutils"
    done
}

# The URI of this machine's Debian source.
debian_uri() {
    # shellcheck disable=SC2016  # apt's own names
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL) $(CODENAME)' 'Identifier: Packages' |
        awk '$2 == "Debian" && $3 == "Debian" && !found {print $1; found = 1}'
}

# base_root SUITE: makes build/roots/SUITE if it is missing, and prints its path.
base_root() {
    local suite=$1 folder=$root/build/roots/$1 uri
    if [ ! -e "$folder/complete" ]; then
        uri=$(debian_uri)
        [ -n "$uri" ] || die "apt knows of no Debian source here"
        say "making a root of $suite in $folder" >&2
        rm -rf "$folder"
        mkdir -p "$folder"
        if ! debootstrap --variant=minbase --include=ca-certificates "$suite" "$folder/root" "$uri" \
            >"$folder/log" 2>&1; then
            tail -n 20 "$folder/log" >&2
            die "debootstrap $suite failed"
        fi
        rm -rf "$folder/root/var/cache/apt/archives/"*.deb
        # The root reaches the server in the same way as this machine (through a proxy, for example).
        apt-config dump | grep -E '^Acquire::https?::' >"$folder/root/etc/apt/apt.conf.d/90machine" || true
        : >"$folder/complete"
    fi
    printf '%s\n' "$folder/root"
}

# fresh_root SUITE FOLDER: makes a copy that may be changed.
fresh_root() {
    local base
    base=$(base_root "$1") || exit 1
    mkdir -p "$2"
    cp -a "$base/." "$2/"
    cp -L /etc/resolv.conf /etc/hosts "$2/etc/"
}

# in_root FOLDER COMMAND…: runs the command with its own /proc; its remaining processes end with it. The environment
# has only basic variables and root_environment (an array of NAME=value); root_mounts are mounted at the same paths.
root_environment=()
root_mounts=()
in_root() {
    local folder=$1 path
    shift
    for path in "${root_mounts[@]}"; do
        mkdir -p "$folder$(dirname "$path")"
        if [ -d "$path" ]; then mkdir -p "$folder$path"; else : >>"$folder$path"; fi
    done
    # shellcheck disable=SC2016  # the inner shell's own variables
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        folder=$1
        mount -t proc proc "$folder/proc"
        for path in "${@:3:$2}"; do mount --bind "$path" "$folder$path"; done
        shift $(($2 + 2))
        exec chroot "$folder" "$@"' \
        bash "$folder" ${#root_mounts[@]} "${root_mounts[@]}" \
        /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$HOME" LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "${root_environment[@]}" "$@"
}

# lend_ccache FOLDER: gives in_root a compiler cache.
lend_ccache() {
    root_mounts+=("$1")
    root_environment+=("CCACHE_DIR=$1")
}

# Gives in_root this machine's npm settings (npm_config_* and configuration files), and the certificates that they name.
lend_npm_settings() {
    local setting path
    while IFS= read -r setting; do root_environment+=("$setting"); done < <(env | grep -i '^npm_config_' || true)
    for path in /etc/npmrc "$HOME/.npmrc"; do
        [ -e "$path" ] || continue
        root_mounts+=("$path")
        # Debian's npm does not read /etc/npmrc.
        [ "$path" != /etc/npmrc ] || root_environment+=("npm_config_globalconfig=$path")
    done
    path=$(npm config get cafile 2>/dev/null || true)
    if [[ $path == /* && -e $path ]]; then root_mounts+=("$path"); fi
}

# Gives in_root this machine's pip settings (PIP_* and configuration files), and the local paths that they name.
lend_pip_settings() {
    local setting path value
    while IFS= read -r setting; do root_environment+=("$setting"); done < <(env | grep '^PIP_' || true)
    for path in /etc/pip.conf "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        [ ! -e "$path" ] || root_mounts+=("$path")
    done
    while IFS= read -r value; do
        for path in $value; do
            path=${path#file://}
            [[ $path == /* && -e $path ]] || continue
            # A simple index of files uses relative links to wheels next to it.
            [[ $path != */simple ]] || path=${path%/simple}
            root_mounts+=("$path")
        done
    done < <(python3 -m pip config list 2>/dev/null | sed "s/^[^=]*='//; s/'$//; s/\\\\n/ /g")
}
