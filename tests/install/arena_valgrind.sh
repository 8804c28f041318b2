#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# arena_valgrind.sh VALGRIND PROGRAM: fails unless valgrind reports exactly the 26 errors of PROGRAM
# (test_arena_checkers): uses of arena memory after its end, accesses after an object, and uses of a
# slab's slot after its free. Skipped if the library was built without valgrind's headers.
set -eu
valgrind=$1 program=$2
[ -e /usr/include/valgrind/memcheck.h ] || {
    echo "valgrind/memcheck.h is not there: skipped"
    exit 0
}
status=0
expect() { # expect ERRORS ARGUMENT
    said=$("$valgrind" --error-limit=no --num-callers=3 --read-inline-info=no \
        "$program" "$2" 2>&1) || status=1
    printf '%s\n' "$said" | grep -q "ERROR SUMMARY: $1 errors" || {
        status=1
        printf '%s\n' "$said" | tail -40
        echo "$2: not $1 errors"
    }
}
expect 26 misuse
expect 0 use
exit "$status"
