#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs README's two commands where nothing is installed by hand: makes a bare Debian 12 with
# debootstrap in FOLDER, puts a clone of this checkout's HEAD into it and runs there, as root
# or as a user, `./dev demo` and `./dev test`. If a command that runs as a user asks for packages,
# root installs them and the command is run again. Transcripts are FOLDER.COMMAND.log; their last
# lines are printed. For root, with debootstrap installed.
#
#   scripts/bare_root.sh root|user FOLDER [MIRROR]
set -eu

case $#-${1-} in
2-root | 2-user | 3-root | 3-user) ;;
*)
    sed -n '3,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
user=$1 folder=$2 mirror=${3-}
# shellcheck source=scripts/root_tools.sh
. "$checkout/scripts/root_tools.sh"
need_root bare_root.sh
make_root "$folder" "$mirror"
enter_root "$folder" "$user"

# run_command NAME: ./dev NAME as the user; once more after each line that asks for packages.
run_command() {
    log=$folder.$1.log
    : >"$log"
    while :; do
        code=0
        inside "$user" "./dev $1" </dev/null >"$log.part" 2>&1 || code=$?
        cat "$log.part" >>"$log"
        asked=$(sed -n 's/^dev: missing; .*apt-get install -y//p' "$log.part")
        rm "$log.part"
        [ -n "$asked" ] || break
        # shellcheck disable=SC2086
        install_in_root $asked >>"$log" 2>&1 || break
    done
    printf '== ./dev %s as %s: exit status %s; %s ends:\n' "$1" "$user" "$code" "$log"
    tail -n 4 "$log"
    return "$code"
}

rm -rf "$folder/home/$user/spanwise"
git clone -q --no-hardlinks "$checkout" "$folder/home/$user/spanwise"
chroot "$folder" chown -R "$user" "/home/$user"
status=0
run_command demo || status=1
run_command test || status=1
exit "$status"
