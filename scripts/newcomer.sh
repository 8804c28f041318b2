#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A newcomer's path, timed: clones this checkout into an empty folder and runs there the three
# commands from a clone to a report on a program of one's own. Nothing of .venv or build is used;
# pip fetches numpy and matplotlib as it does for anyone.
#
#   scripts/newcomer.sh [PROGRAM ARGUMENTS]     default: ls -l /usr/bin
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
[ $# -gt 0 ] || set -- ls -l /usr/bin
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM
git clone -q "$root" "$place/spanwise"
cd "$place/spanwise"

# step COMMAND: runs one line as a shell does; says how long it took.
step() {
    begin=$(date +%s%N)
    if ! sh -c "$@" >"$place/said" 2>&1; then
        cat "$place/said" >&2
        printf 'newcomer: this failed: %s\n' "$1" >&2
        exit 1
    fi
    took=$((($(date +%s%N) - begin) / 10000000))
    printf '%4d.%02d s  %s\n' $((took / 100)) $((took % 100)) "$1"
}

start=$(date +%s%N)
step 'python3 -m venv env && env/bin/pip install .'
# shellcheck disable=SC2016 # the inner shell expands it
step 'env/bin/spanwise record -o mine.swt -- "$@"' sh "$@"
step 'env/bin/spanwise report mine.swt -o mine.html'
took=$((($(date +%s%N) - start) / 10000000))
printf '%4d.%02d s  in all, to a report of %d bytes on: %s\n' \
    $((took / 100)) $((took % 100)) "$(wc -c <mine.html)" "$*"
