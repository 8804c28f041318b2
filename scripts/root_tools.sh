# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Functions for scripts that try something on a fresh system: they make a bare Debian 12 in a folder
# by debootstrap, and run commands in
# it. Variables that tell where packages come from (PIP_INDEX_URL, *_proxy)
# reach the commands, and so do the certificates that this system trusts: a registry behind a proxy works.
# The variables of this file: folder, user, trusted, mounted, at.

# need_root NAME: only root can make a root and mount in it.
need_root() {
    [ "$(id -u)" -eq 0 ] || {
        echo "$1: only root can make a root" >&2
        exit 2
    }
}

# make_root FOLDER [MIRROR]: makes the root unless it exists. Its user is $user.
make_root() {
    if [ ! -e "$1/etc/debian_version" ]; then
        # shellcheck disable=SC2086
        debootstrap --variant=minbase bookworm "$1" ${2-} >"$1.debootstrap.log" 2>&1
    fi
}

# enter_root FOLDER USER: it becomes the root of `inside`, and what programs expect is mounted in it until
# the script ends, or leave_root.
enter_root() {
    folder=$1 user=$2
    certificates=/etc/ssl/certs/ca-certificates.crt
    trusted=''
    if [ -f "$certificates" ]; then
        cp "$certificates" "$folder/trusted.crt"
        trusted='PIP_CERT=/trusted.crt SSL_CERT_FILE=/trusted.crt'
    fi
    cp /etc/resolv.conf /etc/hosts "$folder/etc/"
    mounted=''
    trap leave_root EXIT
    trap 'exit 130' INT TERM
    mount_at proc -t proc proc
    mount_at sys -t sysfs sysfs
    mount_at dev -t devtmpfs devtmpfs 2>/dev/null || mount_at dev --bind /dev
    mount_at dev/pts --bind /dev/pts
    mount_at dev/shm -t tmpfs tmpfs
    mount_at tmp -t tmpfs tmpfs
    grep -q "^$user:" "$folder/etc/passwd" || chroot "$folder" useradd --create-home "$user"
    mkdir -p "$folder/home/$user"
}

leave_root() {
    for at in $mounted; do umount "$folder/$at" || umount -l "$folder/$at"; done
    mounted=''
}

# mount_at PLACE ARGS of mount...
mount_at() {
    at=$1
    shift
    mkdir -p "$folder/$at"
    mount "$@" "$folder/$at"
    mounted="$at $mounted"
}

# inside USER COMMAND: in the user's folder `spanwise` of the root, with the variables of the registries.
inside() {
    # shellcheck disable=SC2046,SC2086
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="/home/$user" \
        LC_ALL=C.UTF-8 $trusted $(env | grep -E '^(PIP_INDEX_URL|[a-z]+_proxy)=') \
        chroot --userspec="$1" "$folder" /bin/sh -c "cd /home/$user/spanwise && $2"
}

# install_in_root PACKAGE...
install_in_root() {
    inside root "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends $*" </dev/null
}
