# For scripts/check-docker.sh: what it asks of an engine, for Docker, podman and buildah alike. Sourced, after `work` (a
# folder), `say` and `die` are there.
#
# buildah can build without any rights over cgroups or networks, but what it runs in chroot isolation has neither a
# read-only root nor a process tree of its own. So what it has built is run here, as the image's own configuration says:
# new mount and process namespaces, the root bound read-only, a user without rights.
# shellcheck shell=bash disable=SC2034,SC2154
engine=

# buildah with a store of its own below `store`, where that is set: 1.28 leaves behind containers and images of stages
# that others mount, 1 GB a build, and nobody could tell them from those of another build.
store=
in_store() {
    if [ -n "$store" ]; then
        buildah --root "$store/root" --runroot "$store/run" "$@"
    else
        buildah "$@"
    fi
}
remove_store() {
    if [ -z "$store" ]; then return; fi
    { in_store umount --all && in_store rm --all && in_store rmi --all --force; } >/dev/null 2>&1 || true
    rm -rf "$store"
}

# Whether an engine can be used for all that is needed.
usable() {
    case $1 in
        docker) command -v docker >/dev/null && docker info >/dev/null 2>&1 ;;
        podman) command -v podman >/dev/null && podman info >/dev/null 2>&1 ;;
        buildah) command -v buildah >/dev/null && command -v nsenter >/dev/null && [ "$(id -u)" = 0 ] ;;
        *) return 1 ;;
    esac
}

# choose_engine [NAME]: sets engine, to the first of the three that is usable.
choose_engine() {
    local name
    for name in ${1:-docker podman buildah}; do
        if usable "$name"; then
            engine=$name
            return 0
        fi
    done
    return 1
}

have_image() {
    case $engine in
        docker) docker image inspect "$1" >/dev/null 2>&1 ;;
        podman) podman image exists "$1" ;;
        buildah) in_store inspect --type image "$1" >/dev/null 2>&1 ;;
    esac
}

pull_image() {
    case $engine in
        docker | podman) "$engine" pull -q "$1" >/dev/null 2>&1 ;;
        buildah) in_store pull -q "$1" >/dev/null 2>&1 ;;
    esac
}

remove_image() {
    case $engine in
        docker | podman) "$engine" image rm --force "$1" >/dev/null 2>&1 || true ;;
        buildah) in_store rmi --force "$1" >/dev/null 2>&1 || true ;;
    esac
}

# import_root FOLDER IMAGE: an image of one layer.
import_root() {
    local container
    case $engine in
        docker | podman) tar -C "$1" -c . | "$engine" import - "$2" >/dev/null ;;
        buildah)
            container=$(in_store from scratch)
            in_store copy -q "$container" "$1" / >/dev/null
            in_store commit -q "$container" "$2" >/dev/null
            in_store rm "$container" >/dev/null
            ;;
    esac
}

# build_image ARGUMENT…: as `docker build` takes them. A healthcheck is part of Docker's format alone.
build_image() {
    case $engine in
        docker) docker build "$@" ;;
        podman) podman build --format docker "$@" ;;
        buildah) in_store bud --isolation chroot --format docker "$@" ;;
    esac
}

# image_config IMAGE: its configuration as JSON.
image_config() {
    case $engine in
        docker | podman) "$engine" image inspect --format '{{json .Config}}' "$1" ;;
        buildah) in_store inspect --type image "$1" | python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin)["Docker"]["config"]))' ;;
    esac
}

image_healthcheck() {
    case $engine in
        # podman has it beside the configuration.
        podman) podman image inspect --format '{{json .HealthCheck}}' "$image" ;;
        *) image_config "$image" | python3 -c 'import json, sys
print(json.dumps(json.load(sys.stdin).get("Healthcheck")))' ;;
    esac
}

image_bytes() {
    case $engine in
        docker | podman) "$engine" image inspect --format '{{.Size}}' "$1" ;;
        buildah) in_store images --json "$1" | python3 -c 'import json, sys
size, unit = json.load(sys.stdin)[0]["size"].split()
print(int(float(size) * 1000 ** ["B", "KB", "MB", "GB"].index(unit.upper())))' ;;
    esac
}

# The flags of a container that may do as little as it needs. $work/volumes/NAME becomes /NAME.
volumes=(data artifacts models demo)
run_flags() {
    local name
    printf '%s\n' --read-only --tmpfs /tmp --network host --cap-drop ALL --security-opt no-new-privileges
    for name in "${volumes[@]}"; do printf '%s\n' --volume "$work/volumes/$name:/$name"; done
}

# start NAME IMAGE [ARGUMENT…]: a container in the background. Arguments in place of the image's; where the first is
# --entrypoint, the second replaces the entry point. What it says goes to $work/NAME.log.
start() {
    local name=$1 image=$2 flags
    shift 2
    case $engine in
        docker | podman)
            mapfile -t flags < <(run_flags)
            if [ "${1:-}" = --entrypoint ]; then flags+=(--entrypoint "$2"); shift 2; fi
            "$engine" run --detach --name "$container_prefix$name" "${flags[@]}" "$image" "$@" >/dev/null
            ;;
        buildah) start_in_chroot "$name" "$image" "$@" ;;
    esac
}

# The words of an image's configuration, one a line: Entrypoint, Cmd, Env …
config_words() {
    image_config "$2" | python3 -c 'import json, sys
value = json.load(sys.stdin).get(sys.argv[1]) or []
print("\n".join([value] if isinstance(value, str) else value))' "$1"
}

config_label() {
    image_config "$image" | python3 -c 'import json, sys
print((json.load(sys.stdin).get("Labels") or {}).get(sys.argv[1], ""))' "$1"
}

# The words of the image's healthcheck, one a line.
healthcheck_words() {
    image_healthcheck | python3 -c 'import json, sys
words = (json.load(sys.stdin) or {}).get("Test") or ["NONE"]
print("\n".join(words[1:] if words[0] == "CMD" else []))'
}

start_in_chroot() {
    local name=$1 image=$2 container root entrypoint command environment user folder
    shift 2
    mapfile -t entrypoint < <(config_words Entrypoint "$image")
    mapfile -t command < <(config_words Cmd "$image")
    mapfile -t environment < <(config_words Env "$image")
    user=$(config_words User "$image")
    folder=$(config_words WorkingDir "$image")
    if [ "${1:-}" = --entrypoint ]; then
        entrypoint=("$2")
        command=()
        shift 2
    fi
    if [ $# -gt 0 ]; then command=("$@"); fi
    container=$(in_store from --pull-never "$image")
    echo "$container" >>"$work/containers"
    root=$(in_store mount "$container")
    printf '%s\n' "${environment[@]}" >"$work/$name.env"
    # shellcheck disable=SC2016
    ROOT=$root VOLUMES="${volumes[*]}" WORK=$work unshare --mount --pid --fork --kill-child bash -euc '
        mount --make-rprivate /
        mount --bind "$ROOT" "$ROOT"
        mount -t proc proc "$ROOT/proc"
        mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
        for device in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
            mknod -m 666 "$ROOT/dev/${device% *}" c 1 "${device#* }"
        done
        mkdir "$ROOT/dev/shm"
        mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
        mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
        for name in $VOLUMES; do
            mkdir -p "$ROOT/$name"
            mount --bind "$WORK/volumes/$name" "$ROOT/$name"
        done
        mount -o remount,bind,ro "$ROOT"
        user=$1 folder=$2
        shift 2
        exec chroot --userspec="$user" --groups= "$ROOT" /usr/bin/env -i -C "$folder" "$@"
    ' start "$user" "$folder" "${environment[@]}" "${entrypoint[@]}" "${command[@]}" \
        >"$work/$name.log" 2>&1 </dev/null &
    echo $! >"$work/$name.pid"
}

# The container's first process, as the machine numbers it, once it is in the container's root.
first_process() {
    local parent child
    parent=$(<"$work/$1.pid")
    for _ in $(seq 50); do
        child=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null) || return 1
        child=${child%% *}
        if [ -n "$child" ] && [ "$(readlink "/proc/$child/root")" != / ]; then
            echo "$child"
            return 0
        fi
        sleep 0.1
    done
    return 1
}

# inside NAME WORD…: runs a command in the container, as its user. inside_as_root: as root.
inside() {
    local name=$1
    shift
    case $engine in
        docker | podman) "$engine" exec "$container_prefix$name" "$@" ;;
        buildah) nsenter_container "$name" --setuid 10001 --setgid 10001 -- "$@" ;;
    esac
}
inside_as_root() {
    local name=$1
    shift
    case $engine in
        docker | podman) "$engine" exec --user 0 "$container_prefix$name" "$@" ;;
        buildah) nsenter_container "$name" -- "$@" ;;
    esac
}
nsenter_container() {
    local pid environment options=()
    pid=$(first_process "$1") || return 1
    mapfile -t environment <"$work/$1.env"
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    nsenter --target "$pid" --mount --pid --root --wd "${options[@]}" /usr/bin/env -i "${environment[@]}" "$@"
}

running() {
    case $engine in
        docker | podman) [ "$("$engine" inspect --format '{{.State.Running}}' "$container_prefix$1")" = true ] ;;
        buildah) kill -0 "$(<"$work/$1.pid")" 2>/dev/null ;;
    esac
}

# send_term NAME: what `docker stop` and a kubelet send first, to the container's first process.
send_term() {
    case $engine in
        docker | podman) "$engine" kill --signal TERM "$container_prefix$1" >/dev/null ;;
        buildah) kill -TERM "$(first_process "$1")" ;;
    esac
}

# wait_for_end NAME: leaves the exit code in exit_code.
wait_for_end() {
    exit_code=0
    case $engine in
        docker | podman) exit_code=$("$engine" wait "$container_prefix$1") ;;
        buildah) wait "$(<"$work/$1.pid")" || exit_code=$? ;;
    esac
}

logs() {
    case $engine in
        docker | podman) "$engine" logs "$container_prefix$1" 2>&1 || true ;;
        buildah) cat "$work/$1.log" ;;
    esac
}

# remove NAME: the container, whatever it does.
remove() {
    case $engine in
        docker | podman) "$engine" rm --force "$container_prefix$1" >/dev/null 2>&1 || true ;;
        buildah)
            if [ -e "$work/$1.pid" ]; then
                kill -KILL "$(<"$work/$1.pid")" 2>/dev/null || true
                { wait "$(<"$work/$1.pid")" || true; } 2>/dev/null
                rm -f "$work/$1.pid"
            fi
            ;;
    esac
}

# Removes what containers have written, as their user.
empty_volumes() {
    local flags
    mapfile -t flags < <(run_flags)
    "$engine" run --rm "${flags[@]}" --entrypoint sh "$image" -c 'rm -rf /data/* /artifacts/* /models/*' || true
}

# forget_containers: what buildah keeps of those that were started.
forget_containers() {
    local container
    [ -e "$work/containers" ] || return 0
    while read -r container; do
        in_store umount "$container" >/dev/null 2>&1 || true
        in_store rm "$container" >/dev/null 2>&1 || true
    done <"$work/containers"
}
