#!/usr/bin/env bash
# Builds the preset `package` and packs it into build/packages/: distilld_VERSION_ARCH.deb,
# distilld-worker_VERSION_ARCH.deb and a .tar.gz of everything. Prints their SHA-256. The packages contain copies of
# libraries that differ between Debian's releases, libtorch among them. A build on Debian 12 runs on 12 and newer.
#
#   --check-reproducible   build and pack a second time, from a clone of the current commit in a folder of another name
#                          and without the compiler's cache, and compare; exit code 1 if anything differs
#   --cached               use the cache: minutes instead of half an hour, but a weaker check
#   --output FOLDER        write the packages there
#
# The same commit, compiler, libraries and libtorch give the same bytes: the packages contain no paths of the checkout,
# and all files have the commit's time (SOURCE_DATE_EPOCH).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
check=0
cached=0
output=$root/build/packages
while [ $# -gt 0 ]; do
    case $1 in
        --check-reproducible) check=1 ;;
        --cached) cached=1 ;;
        --output) output=$(realpath -m -- "${2:?--output takes a folder}"); shift ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "package: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done

say() { printf 'package: %s\n' "$*"; }
die() {
    printf 'package: %s\n' "$*" >&2
    exit 1
}
for tool in cpack dpkg-deb dpkg-shlibdeps gzip strip; do
    command -v "$tool" >/dev/null || die "$tool is missing; scripts/setup.sh installs it"
done

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -c safe.directory="$root" log -1 --format=%ct 2>/dev/null) ||
        die "this is not a git checkout: set SOURCE_DATE_EPOCH to the modification time for the files"
fi
export SOURCE_DATE_EPOCH
umask 022

scripts/build.sh package distilld distilld-worker distilld_pages
made=$root/build/packages
mkdir -p "$made"
rm -rf "$made"/*.deb "$made"/*.tar.gz "$made/_CPack_Packages"

# The packages that the programs and libraries need, except those whose libraries we include.
depends_of() {
    local stage=$work/stage/usr exclude=() library owner
    for library in "$stage"/lib/distilld/*; do
        while read -r owner; do exclude+=("-x$owner"); done \
            < <(dpkg-query -S "*/$(basename "$library")" 2>/dev/null | cut -d: -f1 | sort -u)
    done
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "-l$stage/lib/distilld" "${exclude[@]}" "$@" 2>"$work/log") |
        sed -n 's/^shlibs:Depends=//p'
}
work=$(mktemp -d "${TMPDIR:-/tmp}/distilld-package-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: distilld\n\nPackage: distilld\nArchitecture: any\n' >"$work/debian/control"
cmake --install build/package --prefix "$work/stage/usr" --component control >"$work/log" 2>&1
control_libraries=("$work/stage/usr/lib/distilld"/*)
control_depends=$(depends_of "$work/stage/usr/bin/distilld" "${control_libraries[@]}")
cmake --install build/package --prefix "$work/stage/usr" --component worker >"$work/log" 2>&1
worker_depends=$(depends_of "$work/stage/usr/bin/distilld-worker" "$work/stage/usr/lib/distilld"/*)
rm -rf "$work/stage"
if [ -z "$control_depends" ] || [ -z "$worker_depends" ]; then
    cat "$work/log" >&2
    die "dpkg-shlibdeps found no dependencies"
fi
version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")$/\1/p' build/package/CPackConfig.cmake)

say "packing"
if ! packed=$(cpack --config build/package/CPackConfig.cmake \
    -D "CPACK_DEBIAN_CONTROL_PACKAGE_DEPENDS=$control_depends" \
    -D "CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS=distilld (= $version), $worker_depends" 2>&1); then
    printf '%s\n' "$packed" >&2
    exit 1
fi
rm -rf "$made/_CPack_Packages"
if [ "$output" != "$made" ]; then
    mkdir -p "$output"
    cp "$made"/*.deb "$made"/*.tar.gz "$output/"
fi
(cd "$output" && sha256sum -- *.deb *.tar.gz | tee SHA256SUMS)

if [ "$check" = 1 ]; then
    [ -z "$(git status --porcelain --untracked-files=no)" ] ||
        die "there are uncommitted changes, which the clone would not have"
    folder=$work/second
    mkdir "$folder"
    say "a second time, from a clone in $folder"
    git clone -q "$root" "$folder/another-name"
    for modules in .deps web/node_modules; do
        [ ! -e "$modules" ] || ln -s "$(realpath "$modules")" "$folder/another-name/$modules"
    done
    if [ "$cached" = 0 ]; then export CCACHE_DISABLE=1; fi
    "$folder/another-name/scripts/package.sh" >"$folder/log" 2>&1 || {
        tail -n 30 "$folder/log" >&2
        die "the second build failed"
    }
    if diff <(cd "$output" && cat SHA256SUMS) "$folder/another-name/build/packages/SHA256SUMS"; then
        say "reproducible: both builds gave the same bytes"
    else
        die "the two builds differ"
    fi
fi
