#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tries each package as a new user would, each in an empty Debian 12 of its own that has only what README
# names for it, by README's commands as they stand:
#
#   checkout  `pip install .` in a clone, then a program of one's own recorded and accounted
#   sdist     the same with the file that a package index would serve as source
#   wheel     the same with a wheel, where there is python3-venv and nothing else: no compiler
#   library   the C library by CMake, README's program by pkg-config, then README's CMake project
#
#   scripts/package_roots.sh [--only ROUTE] FOLDER [MIRROR]
#
# The wheel is that which the route `sdist` made, so it comes after it. Transcripts are FOLDER/ROUTE.log. Exit status 1: one of them failed. For root, with debootstrap.
set -eu

only=''
if [ "${1-}" = --only ] && [ $# -ge 2 ]; then
    only=$2
    shift 2
fi
case $# in
1 | 2) ;;
*)
    sed -n '3,15s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mirror=${2-}
mkdir -p "$1"
place=$(CDPATH='' cd -- "$1" && pwd)
# shellcheck source=scripts/root_tools.sh
. "$checkout/scripts/root_tools.sh"
need_root package_roots.sh

# block TEXT: README's fenced block that has the text.
block() {
    awk -v wanted="$1" '
        /^```/ { if (open && index(text, wanted)) { printf "%s", text; exit }
                 open = !open; text = ""; next }
        open { text = text $0 "\n" }' "$checkout/README.md"
}
# packages TEXT: what README says to install by apt-get, on the line that has the text.
packages() { sed -n "s/.*\`apt-get install \([^\`]*$1[^\`]*\)\`.*/\1/p" "$checkout/README.md"; }

# begin ROUTE PACKAGE...: an empty root with a clone in the user's folder, and the packages.
begin() {
    route=$1
    shift
    rm -rf "${place:?}/$route"
    cp -a "$place/base" "$place/$route"
    enter_root "$place/$route" tester
    git clone -q --no-hardlinks "$checkout" "$folder/home/tester/spanwise"
    chroot "$folder" chown -R tester /home/tester
    install_in_root "$@"
}

# own_program WHAT: README's commands for a program of one's own, with `pip install WHAT`.
own_program() {
    block 'env/bin/spanwise record' | sed "s| install \.  *#.*| install $1|" \
        >"$folder/home/tester/spanwise/told.sh"
    inside tester 'sh -eux told.sh'
}

route_checkout() {
    # shellcheck disable=SC2046
    begin checkout $(packages python3-venv)
    own_program .
}
route_sdist() {
    # shellcheck disable=SC2046
    begin sdist $(packages python3-venv)
    inside tester 'python3 -m venv /tmp/tools && /tmp/tools/bin/pip install -q build &&
        /tmp/tools/bin/python -m build -q --sdist -o /home/tester/dist'
    own_program '/home/tester/dist/spanwise-*.tar.gz'
    mkdir -p "$place/dist"
    cp "$folder"/home/tester/dist/* "$place/dist/"
    # The wheel for the next root is built in this one, which has a compiler.
    inside tester '/tmp/tools/bin/pip wheel -q --no-deps -w /home/tester/wheels \
        /home/tester/dist/*.tar.gz'
    cp "$folder"/home/tester/wheels/* "$place/dist/"
}
route_wheel() {
    begin wheel python3-venv
    cp "$place"/dist/spanwise-*.whl "$folder/home/tester/"
    own_program '/home/tester/spanwise-*.whl'
}
route_library() {
    # shellcheck disable=SC2046
    begin library $(packages pkg-config)
    home=$folder/home/tester/spanwise
    block '#include <spanwise/spanwise.h>' >"$home/example.c"
    block 'cmake --install' >"$home/told.sh"
    inside tester 'sh -eux told.sh'
    mkdir "$home/project"
    cp "$home/example.c" "$home/project/"
    block 'find_package(spanwise' >"$home/project/CMakeLists.txt"
    chroot "$folder" chown -R tester /home/tester
    # shellcheck disable=SC2016
    inside tester 'cmake -S project -B project/build -G Ninja -DCMAKE_PREFIX_PATH="$HOME/spanwise" &&
        cmake --build project/build && project/build/example'
}

make_root "$place/base" "$mirror"
case $only in
'') ;;
checkout) route_checkout ;;
sdist) route_sdist ;;
wheel) route_wheel ;;
library) route_library ;;
*)
    echo "package_roots.sh: no route '$only': use checkout, sdist, wheel or library" >&2
    exit 2
    ;;
esac
[ -z "$only" ] || exit 0

status=0
for name in checkout sdist wheel library; do
    code=0
    "$0" --only "$name" "$place" ${mirror:+"$mirror"} >"$place/$name.log" 2>&1 || code=$?
    printf '== %s: exit status %s; %s ends:\n' "$name" "$code" "$place/$name.log"
    tail -n 3 "$place/$name.log"
    [ "$code" -eq 0 ] || status=1
done
exit "$status"
