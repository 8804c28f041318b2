#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs README's two commands where nothing is installed by hand: makes a bare Debian 12 with
# debootstrap in FOLDER, puts a clone of this checkout's HEAD into it and runs there, as root,
# `./dev demo` and `./dev test`; then both again in a second clone as a user. Transcripts are
# FOLDER.COMMAND.WHO.log; their last lines are printed. For root, with debootstrap installed.
#
#   scripts/bare_root.sh FOLDER [MIRROR [WHO]]     WHO: root, user, or both (as it is without)
#
# Variables that tell where certificates and packages come from (PIP_*, SSL_*, *_proxy) reach the
# commands, and the certificates of this system are copied, so that a registry behind a proxy works.
set -eu

[ $# -ge 1 ] && [ $# -le 3 ] || {
    sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$1 mirror=${2-} who=${3-both}
[ "$(id -u)" -eq 0 ] || {
    echo 'bare_root.sh: only root can make a root' >&2
    exit 2
}

if [ ! -e "$folder/etc/debian_version" ]; then
    # shellcheck disable=SC2086
    debootstrap --variant=minbase bookworm "$folder" $mirror >"$folder.debootstrap.log" 2>&1
fi
mkdir -p "$folder/etc/ssl/certs"
cp -RL /etc/ssl/certs/. "$folder/etc/ssl/certs/" 2>/dev/null || true
cp /etc/resolv.conf /etc/hosts "$folder/etc/"

mounted=''
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
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="/home/$1" \
        LC_ALL=C.UTF-8 $(env | grep -E '^(PIP_(CERT|INDEX_URL|DEFAULT_TIMEOUT)|SSL_|[a-z]+_proxy)') \
        chroot --userspec="$1" "$folder" /bin/sh -c "cd /home/$1/spanwise && $2"
}

status=0
for user in root user; do
    [ "$who" = both ] || [ "$who" = "$user" ] || continue
    mkdir -p "$folder/home/$user"
    grep -q "^$user:" "$folder/etc/passwd" ||
        chroot "$folder" useradd --create-home --uid 1000 "$user"
    rm -rf "$folder/home/$user/spanwise"
    git clone -q --no-hardlinks "$checkout" "$folder/home/$user/spanwise"
    chroot "$folder" chown -R "$user" "/home/$user"
    for command in demo test; do
        log=$folder.$command.$user.log
        code=0
        inside "$user" "./dev $command" </dev/null >"$log" 2>&1 || code=$?
        [ "$code" -eq 0 ] || status=1
        printf '== ./dev %s as %s: exit status %s; %s ends:\n' "$command" "$user" "$code" "$log"
        tail -n 4 "$log"
    done
done
exit "$status"
