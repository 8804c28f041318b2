#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh NM LIBRARY PREFIX: fails when the shared library defines a dynamic symbol that does
# not begin with PREFIX, or none that does.
set -eu
nm=$1 library=$2 prefix=$3

names=$("$nm" -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@.*//')
strange=$(printf '%s\n' "$names" | grep -v "^$prefix" || true)
if [ -n "$strange" ]; then
    echo "$library exports names that do not begin with $prefix:"
    printf '%s\n' "$strange"
    exit 1
fi
count=$(printf '%s\n' "$names" | grep -c "^$prefix" || true)
if [ "$count" -eq 0 ]; then
    echo "$library exports nothing"
    exit 1
fi
echo "$count exported names, all begin with $prefix"
