#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs README's commands where nothing is installed: makes a bare Debian 12 in FOLDER with
# debootstrap, clones this checkout's HEAD into it, and runs `./dev demo` and `./dev test` there as
# root or as a user. If a user's command needs packages, root installs them and it runs again.
# Transcripts are FOLDER.COMMAND.log. For root, with debootstrap installed.
#
#   scripts/bare_root.sh root|user FOLDER [MIRROR]
set -eu

case $#-${1-} in
2-root | 2-user | 3-root | 3-user) ;;
*)
    sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
[ "$(id -u)" -eq 0 ] || {
    echo 'bare_root.sh: must run as root' >&2
    exit 2
}
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
user=$1 folder=$2 mirror=${3-}
if [ ! -e "$folder/etc/debian_version" ]; then
    # shellcheck disable=SC2086
    debootstrap --variant=minbase bookworm "$folder" $mirror >"$folder.debootstrap.log" 2>&1
fi

mounted=''
# shellcheck disable=SC2317
leave_root() {
    for at in $mounted; do umount "$folder/$at" || umount -l "$folder/$at"; done
}
trap leave_root EXIT
trap 'exit 130' INT TERM

# mount_at FOLDER ARGS of mount...
mount_at() {
    at=$1
    shift
    mkdir -p "$folder/$at"
    mount "$@" "$folder/$at"
    mounted="$at $mounted"
}
mount_at proc -t proc proc
mount_at sys -t sysfs sysfs
mount_at dev -t devtmpfs devtmpfs 2>/dev/null || mount_at dev --bind /dev
mount_at dev/pts --bind /dev/pts
mount_at dev/shm -t tmpfs tmpfs
mount_at tmp -t tmpfs tmpfs
cp /etc/resolv.conf /etc/hosts "$folder/etc/"
certificates=/etc/ssl/certs/ca-certificates.crt
trusted=''
if [ -f "$certificates" ]; then
    cp "$certificates" "$folder/trusted.crt"
    trusted='PIP_CERT=/trusted.crt SSL_CERT_FILE=/trusted.crt'
fi

# inside USER COMMAND: run it in the clone, with this system's registries, proxies and certificates.
inside() {
    # shellcheck disable=SC2046,SC2086
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="/home/$user" \
        LC_ALL=C.UTF-8 $trusted $(env | grep -E '^(PIP_INDEX_URL|[a-z]+_proxy)=') \
        chroot --userspec="$1" "$folder" /bin/sh -c "cd /home/$user/spanwise && $2"
}

# run_command NAME: run ./dev NAME as the user, again after each line that names missing packages.
run_command() {
    log=$folder.$1.log
    : >"$log"
    while :; do
        code=0
        inside "$user" "./dev $1" </dev/null >"$log.part" 2>&1 || code=$?
        cat "$log.part" >>"$log"
        packages=$(sed -n 's/^dev: missing; .*apt-get install -y//p' "$log.part")
        rm "$log.part"
        [ -n "$packages" ] || break
        inside root "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends $packages" </dev/null >>"$log" 2>&1 || break
    done
    printf '== ./dev %s as %s: exit status %s; %s ends:\n' "$1" "$user" "$code" "$log"
    tail -n 4 "$log"
    return "$code"
}

grep -q "^$user:" "$folder/etc/passwd" || chroot "$folder" useradd --create-home "$user"
mkdir -p "$folder/home/$user"
rm -rf "$folder/home/$user/spanwise"
git clone -q --no-hardlinks "$checkout" "$folder/home/$user/spanwise"
chroot "$folder" chown -R "$user" "/home/$user"
status=0
run_command demo || status=1
run_command test || status=1
exit "$status"
