#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks Debian's arm64 package of the zstd development files, which has no cross package, into
# FOLDER for cmake/arm64.cmake. Package lists and state are in a temporary folder, so the machine's
# installed packages and its list of architectures do not change.
set -eu

[ $# -eq 1 ] || {
    echo 'usage: scripts/arm64_root.sh FOLDER' >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
: >"$work/state/status"

arm64_apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o Dir::State="$work/state" -o Dir::State::status="$work/state/status" \
        -o Dir::Cache="$work/cache" -o Acquire::Languages=none "$@" </dev/null
}

# A source without arm64 makes the update fail; the others may suffice.
arm64_apt update || true
(cd "$work" && arm64_apt download libzstd-dev)
dpkg-deb -x "$work"/libzstd-dev_*_arm64.deb "$work/root"
mkdir -p "$(dirname "$1")"
rm -rf "$1"
cp -R "$work/root" "$1"
