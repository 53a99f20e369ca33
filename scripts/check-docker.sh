#!/usr/bin/env bash
# Builds the image and runs a distillation job in it with an available engine: a running Docker engine, podman, or
# buildah (as root). Exit code 0 only if all of this holds:
#
#   - the image is built by docker/Dockerfile, contains neither Python nor a compiler, and has CMakeLists.txt's version
#   - with a read-only root, as user 10001 and without capabilities, service and teacher start and are healthy
#   - the demonstration of docker/compose.yaml works: a teacher is trained from scratch, and a job that curl submits
#     from outside distils a student from it
#   - SIGTERM ends the service with 0 and its running job with a checkpoint; the next container continues that job
#
#   --engine NAME   use only this one: docker, podman or buildah
#   --install       without an engine, install buildah and debootstrap with apt (Debian, as root)
#   --target NAME   cpu (default) or cuda (built and inspected; no job is run)
#   --image NAME    do not build: check this image
#   --base IMAGE    replaces the base image in docker/Dockerfile
#   --keep          leave the image (distilld:check) in the engine's store
#   -- ARGUMENT…    for the build, as for `docker build` (--build-context, --build-arg)
#
# The build uses this machine's pip settings: variables PIP_…, its pip.conf, a folder in PIP_FIND_LINKS. If the base
# image is not available, debootstrap makes a Debian of that release from this machine's own package source instead (as
# root; scripts/debian_root.sh). The first build takes long, later ones minutes, because the engine keeps the compiler's
# cache (docs/docker.md).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

self=check-docker
# shellcheck source=scripts/debian_root.sh
. scripts/debian_root.sh
say() { printf 'check-docker: %s (%d s)\n' "$*" "$SECONDS"; }
die() {
    printf 'check-docker: error: %s\n' "$*" >&2
    exit 1
}

wanted_engine=
install=0
target=cpu
image=
base=$(sed -n 's/^ARG BASE_IMAGE=//p' docker/Dockerfile)
keep=0
while [ $# -gt 0 ]; do
    case $1 in
        --engine) wanted_engine=${2:?--engine takes a name}; shift ;;
        --install) install=1 ;;
        --target) target=${2:?--target takes cpu or cuda}; shift ;;
        --image) image=${2:?--image takes a name}; shift ;;
        --base) base=${2:?--base takes an image}; shift ;;
        --keep) keep=1 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        --) shift; break ;;
        *) echo "check-docker: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done
build_arguments=("$@")

work=$(mktemp -d)
# The containers' volumes; their user is not ours.
mkdir -m 777 "$work/volumes" "$work/volumes"/{data,artifacts,models,demo}
chmod 711 "$work"
container_prefix=distilld-check-$$-
stand_in=
started=()
# shellcheck source=docker/engine.sh
. docker/engine.sh

cleanup() {
    local status=$? name
    trap - EXIT INT TERM
    for name in "${started[@]}"; do
        if [ "$status" != 0 ]; then
            printf -- '--- %s said\n' "$name" >&2
            logs "$name" | tail -n 20 >&2
        fi
        remove "$name"
    done
# Another user may own the containers' files here.
    if [ "$(id -u)" != 0 ] && [ ${#started[@]} -gt 0 ]; then empty_volumes; fi
    if [ -n "$engine" ]; then
        forget_containers
        if [ -n "$stand_in" ]; then remove_image "$stand_in"; fi
        if [ "$keep" = 0 ] && [ -z "$given_image" ]; then remove_image "$image"; fi
        remove_store
    fi
    rm -rf "$work"
    exit "$status"
}
given_image=$image
image=${image:-distilld:check}
trap cleanup EXIT
trap 'exit 130' INT TERM

installed() {
    [ "$install" = 1 ] || die "$1 is missing: --install gets it with apt, or install it"
    [ "$(id -u)" = 0 ] || die "--install needs root"
    say "installing $1"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$1" >/dev/null
}

for program in curl python3; do command -v "$program" >/dev/null || die "$program is needed"; done
if ! choose_engine "$wanted_engine"; then
    [ "${wanted_engine:-buildah}" = buildah ] || die "$wanted_engine does not answer"
    installed buildah
    choose_engine buildah || die "buildah needs root and nsenter (util-linux)"
fi
say "engine: $engine"
# Not in /tmp, which may be in memory.
if [ "$engine" = buildah ] && [ "$keep" = 0 ] && [ -z "$given_image" ]; then
    store=$(mktemp -d /var/tmp/distilld-check.XXXXXX)
fi

# A Debian of the base's release without documentation and package lists, like the slim images.
make_stand_in() {
    local suite base_folder
    case $base in
        *debian:13* | *debian:trixie*) suite=trixie ;;
        *debian:12* | *debian:bookworm*) suite=bookworm ;;
        *) die "cannot get the base image $base, and there is no Debian to replace it" ;;
    esac
    command -v debootstrap >/dev/null || installed debootstrap
    need_for_roots
    stand_in=localhost/distilld-base:$suite
    say "$base cannot be had here: making a Debian $suite in its place"
    local folder=$work/base
    base_folder=$(base_root "$suite")
    cp -a "$base_folder" "$folder"
    printf 'path-exclude /usr/share/%s/*\n' doc man locale info >"$folder/etc/dpkg/dpkg.cfg.d/slim"
    echo 'path-include /usr/share/doc/*/copyright' >>"$folder/etc/dpkg/dpkg.cfg.d/slim"
    find "$folder/usr/share/doc" -type f ! -name copyright -delete
    rm -rf "$folder"/usr/share/{man,locale,info}/* "$folder"/var/lib/apt/lists/* "$folder"/var/cache/apt/archives/*.deb
    import_root "$folder" "$stand_in"
    rm -rf "$folder"
    base=$stand_in
}

pip_arguments() {
    local name file
    local names
    read -ra names < <(sed -n 's/^ARG \(PIP_\)/\1/p' docker/Dockerfile)
    for name in "${names[@]}"; do
        case $name in
            PIP_FIND_LINKS)
                if [ -d "${PIP_FIND_LINKS:-}" ]; then
                    printf '%s\n' --build-context "wheels=$PIP_FIND_LINKS"
                elif [ -n "${PIP_FIND_LINKS:-}" ]; then
                    printf '%s\n' --build-arg "$name=$PIP_FIND_LINKS"
                fi
                ;;
            *) if [ -n "${!name:-}" ]; then printf '%s\n' --build-arg "$name=${!name}"; fi ;;
        esac
    done
    for file in "${PIP_CONFIG_FILE:-}" ~/.config/pip/pip.conf ~/.pip/pip.conf /etc/pip.conf; do
        if [ -f "$file" ]; then
            printf '%s\n' --secret "id=pip-conf,src=$file"
            break
        fi
    done
    if [ -f "${PIP_CERT:-}" ]; then printf '%s\n' --secret "id=pip-cert,src=$PIP_CERT"; fi
}

version=$(sed -nE 's/^project\(distilld VERSION ([^ ]+).*/\1/p' CMakeLists.txt)
if [ -z "$given_image" ]; then
    if ! have_image "$base" && ! pull_image "$base"; then make_stand_in; fi
    mapfile -t pip < <(pip_arguments)
    if [ -d web/node_modules ]; then pip+=(--build-context page-modules=web); fi
    say "building the target $target on $base"
    build_image -f docker/Dockerfile --target "$target" -t "$image" --build-arg "BASE_IMAGE=$base" \
        --build-arg "VERSION=$version" "${pip[@]}" "${build_arguments[@]}" .
fi
bytes=$(image_bytes "$image")
say "image: $image, $((bytes / 1000000)) MB"
[ "$(config_label org.opencontainers.image.version)" = "$version" ] || die "the image's label has another version"
[ "$(config_words StopSignal "$image")" = SIGTERM ] || die "the image has another stop signal"

# begin NAME ARGUMENT…: starts a container of the image, which is removed at the end.
begin() {
    started+=("$1")
    start "$1" "$image" "${@:2}"
}

# finish NAME: waits for its container, which must end with 0.
finish() {
    wait_for_end "$1"
    [ "$exit_code" = 0 ] || die "$1 ended with $exit_code"
}

# healthy NAME COMMAND…: the command must succeed inside within a minute.
healthy() {
    local name=$1
    shift
    for _ in $(seq 120); do
        if inside "$name" "$@" >/dev/null 2>&1; then return 0; fi
        running "$name" || die "$name has ended"
        sleep 0.5
    done
    die "$name does not become healthy: $(inside "$name" "$@" 2>&1 || true)"
}

field() {
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].strip("/").split("/"):
    value = value[name] if value is not None else None
print("" if value is None else value)' "$1"
}

# Inspect the image's contents and user in a container that only sleeps.
begin look --entrypoint sleep 600
for _ in $(seq 50); do
    if inside look true 2>/dev/null; then break; fi
    sleep 0.2
done
# shellcheck disable=SC2016
found=$(inside look sh -c '
    for name in python3 python pip gcc cc c++ g++ clang clang++ ld cmake make; do command -v $name; done
    find / -xdev -name "libpython*" 2>/dev/null') || true
[ -z "$found" ] || die "the image contains files that only a build needs: $found"
user=$(inside look sed -n 's/^Uid:[^0-9]*\([0-9]*\).*/\1/p' /proc/1/status)
[ "$user" = 10001 ] || die "the image runs as user $user"
inside look sh -c 'touch /data/a /artifacts/a /tmp/a && rm /data/a /artifacts/a /tmp/a' ||
    die "volumes cannot be written"
if inside_as_root look touch /opt/distilld/a 2>/dev/null; then die "the root file system can be written"; fi
[ "$(inside look distilld --version)" = "distilld $version" ] || die "distilld reports another version"
inside look distilld-worker --version >/dev/null || die "distilld-worker does not start"
remove look
say "no Python, no compiler, user 10001, read-only root"
if [ "$target" != cpu ]; then
    say "done: a job needs a GPU, and was not run"
    exit 0
fi

cp docker/demo/* "$work/volumes/demo/"
begin teacher-model --entrypoint tini -- sh /demo/make-teacher.sh /demo/teacher.json /models/data /models/teacher
finish teacher-model
say "teacher trained"

free_port() {
    python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
teacher=http://127.0.0.1:$(free_port)
begin teacher teacher /models/teacher --listen "${teacher#http://}" --threads 1
healthy teacher distilld healthcheck --server "$teacher"

# Use the image's own command (without keys), port and healthcheck.
service=http://127.0.0.1:8500
if curl -s -o /dev/null --max-time 2 "$service/healthz"; then die "port 8500 of this machine is taken"; fi
mapfile -t healthcheck < <(healthcheck_words)
[ ${#healthcheck[@]} -gt 0 ] || die "the image has no healthcheck"
# Without a key it must not start, and say how to start it.
mapfile -t command < <(config_words Cmd "$image")
begin keyless
wait_for_end keyless
[ "$exit_code" = 2 ] || die "without a key the image's command ended with $exit_code, 2 was expected"
remove keyless
begin service "${command[@]}" --insecure
healthy service "${healthcheck[@]}"
say "healthchecks pass: ${healthcheck[*]}"

# submit OUTPUT STEPS: prints the id of the job.
submit() {
    local answer
    answer=$(sed -e "s|http://teacher:8600|$teacher|; s|\"output\": \"[^\"]*\"|\"output\": \"$1\"|" \
        -e "s|\"max_steps\": [0-9]*|\"max_steps\": $2|" docker/demo/job.json |
        curl -sS --fail-with-body -H 'Content-Type: application/json' -d @- "$service/v1/jobs") ||
        die "refused: $answer"
    field /id <<<"$answer"
}
# state ID: prints its state and step.
state() {
    local job
    job=$(curl -sS --fail-with-body --max-time 10 "$service/v1/jobs/$1") || die "the service is gone: $job"
    echo "$(field /state <<<"$job") $(field /progress/step <<<"$job")"
}
# until_state ID PATTERN SECONDS
until_state() {
    local now=
    for _ in $(seq $(($3 * 4))); do
        now=$(state "$1")
        # shellcheck disable=SC2254
        case $now in $2) return 0 ;; failed* | cancelled*) break ;; esac
        sleep 0.25
    done
    die "job $1 is '$now', and '$2' was expected: $(curl -sS "$service/v1/jobs/$1" | head -c 2000)"
}

job=$(submit demo-student 100)
until_state "$job" 'succeeded *' 600
student=$work/volumes/artifacts/demo-student/model.safetensors
[ -s "$student" ] || die "the job has left no student"
[ "$(stat -c %u "$student")" = "$(stat -c %u "$work/volumes/data/jobs.sqlite")" ] || die "the student has another owner"
say "a job distilled a student"

job=$(submit long 100000)
until_state "$job" 'running [1-9]*' 120
send_term service
finish service
checkpoints=$(find "$work/volumes/artifacts/long/checkpoints" -name 'step-*' -type d)
[ -n "$checkpoints" ] || die "the interrupted job has no checkpoint"
remove service
step=$(basename "$(sort <<<"$checkpoints" | tail -n 1)")
begin service-again "${command[@]}" --insecure
healthy service-again "${healthcheck[@]}"
until_state "$job" 'running [1-9]*' 120
now=$(state "$job")
[ "${now#* }" -ge "$((10#${step#step-}))" ] || die "the job began again: $now after $step"
curl -sS --fail -o /dev/null -X POST "$service/v1/jobs/$job/cancel"
send_term service-again
finish service-again
send_term teacher
finish teacher
say "SIGTERM ended the service in order, and the next one went on from $step"
say "done: image of $((bytes / 1000000)) MB by $engine"
