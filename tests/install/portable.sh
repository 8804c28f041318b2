#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# portable.sh NM ARCHIVE: fails when the archive of a SPANWISE_OS=none build needs anything beyond
# ISO C, six POSIX calls (write, stat, fileno, fseeko, ftello, ftruncate), zstd and the compiler's
# own helpers.
set -eu
nm=$1 archive=$2

iso_c='abort|getenv|aligned_alloc|calloc|malloc|realloc|free|qsort|strtod|strtol|strtoul|strtoull
mem(cpy|set|move|cmp|chr)|str(cmp|ncmp|len|chr|rchr|cspn|error|cpy|ncpy)
f(open|close|read|write|seek|tell|eof|error|flush|puts|printf|gets|putc|getc)|setvbuf|remove|rename
v?(s|sn|f)?printf|time|timespec_get|std(in|out|err)'
posix='write|stat|fileno|fseeko|ftello|ftruncate'
helpers='_GLOBAL_OFFSET_TABLE_|__tls_get_addr|__errno_location|__(u?div|u?mod|popcount)[a-z]i[0-9]'
helpers="$helpers|__stack_chk_fail|__(memcpy|memset|memmove|snprintf|vsnprintf)_chk|__isoc[0-9a-z_]*"

allowed="^($(printf '%s' "$iso_c" | tr '\n' '|')|$posix|$helpers|ZSTD_[A-Za-z0-9_]*)\$"
own=$("$nm" --defined-only --extern-only "$archive" | awk 'NF == 3 { print $3 }' | sort -u)
needs=$("$nm" --undefined-only "$archive" | awk '$1 == "U" { print $2 }' | sort -u)
strange=$(printf '%s\n' "$needs" | grep -vxF "$own" | grep -vE "$allowed" || true)
if [ -n "$strange" ]; then
    echo "$archive needs what not every system has:"
    printf '%s\n' "$strange"
    exit 1
fi
echo "$(printf '%s\n' "$needs" | grep -cvxF "$own") names from outside, all portable"
