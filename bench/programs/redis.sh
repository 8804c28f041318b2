#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# redis.sh COMMANDS SIZE loads generated data into redis-server and runs redis-benchmark on it. Only
# the server gets the preloaded allocator. Prints the digests, which must not depend on it.
set -eu
commands=$1 size=$2
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
# The binary acts as the server under this name; Debian's server package would start a service.
ln -s "$(command -v redis-check-rdb)" "$folder/redis-server"
socket=$folder/redis.sock
"$folder/redis-server" --port 0 --unixsocket "$socket" --appendonly no --save '' --dir "$folder" \
    --enable-debug-command yes --loglevel warning --logfile "$folder/log" &
server=$!
unset LD_PRELOAD
until [ -S "$socket" ]; do
    kill -0 "$server"
    sleep 0.01
done
redis-cli -s "$socket" --pipe <"$commands" | tail -n 1
redis-cli -s "$socket" debug digest
for bytes in 16 1024; do
    # With fixed keys, the content does not depend on the order of the clients.
    redis-benchmark -s "$socket" -q -n "${size}00" -c 20 -P 8 -d "$bytes" \
        -t set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,mset >/dev/null
done
redis-cli -s "$socket" debug digest
redis-cli -s "$socket" dbsize
redis-cli -s "$socket" shutdown nosave
wait "$server"
