#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs README's two commands where nothing is installed by hand: makes a bare Debian 12 with
# debootstrap in FOLDER, puts a clone of this checkout's HEAD into it and runs there, as root
# or as a user, `./dev demo` and `./dev test`. What a command as a user asks for in its one line is
# installed by root, and the command is run again. Transcripts are FOLDER.COMMAND.log; their last
# lines are printed. For root, with debootstrap installed.
#
#   scripts/bare_root.sh root|user FOLDER [MIRROR]
#
# Variables that tell where packages come from (PIP_INDEX_URL, *_proxy) reach the commands, and so
# do the certificates that this system trusts: a registry behind a proxy works.
set -eu

case $#-${1-} in
2-root | 2-user | 3-root | 3-user) ;;
*)
    sed -n '3,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
user=$1 folder=$2 mirror=${3-}
[ "$(id -u)" -eq 0 ] || {
    echo 'bare_root.sh: only root can make a root' >&2
    exit 2
}

if [ ! -e "$folder/etc/debian_version" ]; then
    # shellcheck disable=SC2086
    debootstrap --variant=minbase bookworm "$folder" $mirror >"$folder.debootstrap.log" 2>&1
fi
certificates=/etc/ssl/certs/ca-certificates.crt
trusted=''
if [ -f "$certificates" ]; then
    cp "$certificates" "$folder/trusted.crt"
    trusted='PIP_CERT=/trusted.crt SSL_CERT_FILE=/trusted.crt'
fi
cp /etc/resolv.conf /etc/hosts "$folder/etc/"

mounted=''
# shellcheck disable=SC2317
unmount() {
    for place in $mounted; do umount "$folder/$place" || umount -l "$folder/$place"; done
}
trap unmount EXIT
trap 'exit 130' INT TERM
# mount_at PLACE ARGS of mount...
mount_at() {
    place=$1
    shift
    mkdir -p "$folder/$place"
    mount "$@" "$folder/$place"
    mounted="$place $mounted"
}
mount_at proc -t proc proc
mount_at sys -t sysfs sysfs
mount_at dev -t devtmpfs devtmpfs 2>/dev/null || mount_at dev --bind /dev
mount_at dev/pts --bind /dev/pts
mount_at dev/shm -t tmpfs tmpfs
mount_at tmp -t tmpfs tmpfs

# inside USER COMMAND: in the root, with the variables of the registries.
inside() {
    # shellcheck disable=SC2046,SC2086
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="/home/$user" \
        LC_ALL=C.UTF-8 $trusted $(env | grep -E '^(PIP_INDEX_URL|[a-z]+_proxy)=') \
        chroot --userspec="$1" "$folder" /bin/sh -c "cd /home/$user/spanwise && $2"
}

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
        inside root "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            $asked" </dev/null >>"$log" 2>&1 || break
    done
    printf '== ./dev %s as %s: exit status %s; %s ends:\n' "$1" "$user" "$code" "$log"
    tail -n 4 "$log"
    return "$code"
}

grep -q "^$user:" "$folder/etc/passwd" || chroot "$folder" useradd --create-home "$user"
rm -rf "$folder/home/$user/spanwise"
mkdir -p "$folder/home/$user"
git clone -q --no-hardlinks "$checkout" "$folder/home/$user/spanwise"
chroot "$folder" chown -R "$user" "/home/$user"
status=0
run_command demo || status=1
run_command test || status=1
exit "$status"
