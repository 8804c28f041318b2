#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh NM LIBRARY CC INCLUDE: fails unless the names that the library (shared or an archive)
# exports are those that the public headers in the folder INCLUDE declare with SW_API.
set -eu
nm=$1 library=$2 cc=$3 include=$4

case $library in
*.a) names=$("$nm" --defined-only --extern-only "$library") ;;
*) names=$("$nm" -D --defined-only "$library") ;;
esac
# musl's start files export two names.
names=$(printf '%s\n' "$names" | awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' |
    grep -vx '_init\|_fini' | sort -u)
# A declaration ends at the first parenthesis, bracket or semicolon; its name is the last word.
declared=$(printf '#include <spanwise/%s>\n' spanwise.h fast.h gc_fast.h |
    "$cc" -E -P -DSW_API=SW_DECLARED -D'__attribute__(x)=' -I"$include" - | tr '\n' ' ' |
    sed 's/SW_DECLARED /\n&/g' | sed -n 's/^SW_DECLARED \([^(;[]*\)[(;[].*/\1/p' |
    grep -oE '[A-Za-z0-9_]+ *$' | tr -d ' ' | sort -u)

status=0
report() { # report WHAT NAMES
    [ -n "$2" ] || return 0
    status=1
    printf '%s %s:\n%s\n' "$library" "$1" "$2"
}
lines() { printf '%s\n' "$1" >"$2"; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
lines "$names" "$folder/names"
lines "$declared" "$folder/declared"
report "exports names that no header declares" "$(comm -23 "$folder/names" "$folder/declared")"
report "lacks names that the headers declare" "$(comm -13 "$folder/names" "$folder/declared")"
report "exports names without sw_" "$(printf '%s\n' "$names" | grep -v '^sw_' || true)"
[ "$status" -ne 0 ] || echo "$(printf '%s\n' "$names" | grep -c .) names, as the headers declare them"
exit "$status"
