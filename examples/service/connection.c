/* SPDX-License-Identifier: Apache-2.0 */
/* Connections (connection.h). */
#include "service/connection.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(sw_service_connection) == 256, "a slot of the smallest tier");

static void close_one(sw_service_connections *all, uint32_t number) {
    sw_service_connection *one = all->open[number];
    if (one == NULL) return;
    (void)sw_slabs_free(all->slabs, one->receive);
    (void)sw_slabs_free(all->slabs, one->send);
    (void)sw_slabs_free(all->slabs, one);
    all->open[number] = NULL;
}

static bool open_one(sw_service_connections *all, uint32_t number) {
    sw_service_connection *one = sw_slabs_alloc(all->slabs, sizeof *one, SW_ZERO);
    if (one == NULL) return false;
    one->number = number;
    /* Zeroed, so that the first message of a connection causes no page fault. */
    one->receive = sw_slabs_alloc(all->slabs, SW_SERVICE_RECEIVE_BYTES, SW_ZERO);
    one->send = sw_slabs_alloc(all->slabs, SW_SERVICE_SEND_BYTES, SW_ZERO);
    all->open[number] = one;
    atomic_fetch_add(&all->opened, 1);
    if (one->receive != NULL && one->send != NULL) return true;
    close_one(all, number);
    return false;
}

static bool add_locks(sw_service_connections *all) {
    all->locks = calloc(all->count, sizeof *all->locks);
    if (all->locks == NULL) return false;
    for (uint32_t i = 0; i < all->count; i++) (void)pthread_mutex_init(&all->locks[i], NULL);
    return true;
}

bool sw_service_connections_begin(sw_service_connections *all, uint32_t count, bool is_shared) {
    *all = (sw_service_connections){.count = count};
    sw_slabs_options options;
    sw_slabs_options_init(&options);
    options.locked = is_shared;
    all->open = calloc(count, sizeof(void *));
    if (all->open == NULL || sw_slabs_create(&options, &all->slabs) != SW_OK) return false;
    if (is_shared && !add_locks(all)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!open_one(all, i)) return false;
    return true;
}

void sw_service_connections_end(sw_service_connections *all) {
    sw_slabs_destroy(all->slabs); /* also frees the slots of the connections */
    for (uint32_t i = 0; all->locks != NULL && i < all->count; i++)
        (void)pthread_mutex_destroy(&all->locks[i]);
    free(all->locks);
    free(all->open);
}

sw_service_connection *sw_service_lock(sw_service_connections *all, uint32_t number) {
    if (all->locks != NULL) (void)pthread_mutex_lock(&all->locks[number]);
    return all->open[number];
}

void sw_service_unlock(sw_service_connections *all, uint32_t number) {
    if (all->locks != NULL) (void)pthread_mutex_unlock(&all->locks[number]);
}

bool sw_service_reconnect(sw_service_connections *all, uint32_t number) {
    (void)sw_service_lock(all, number);
    close_one(all, number);
    bool is_open = open_one(all, number);
    sw_service_unlock(all, number);
    return is_open;
}

/* FNV-1a (Fowler, Noll, Vo) over words of 8 bytes, the last one padded with zeros. */
static uint64_t checksum_of(const unsigned char *bytes, uint32_t size) {
    const uint64_t prime = UINT64_C(0x100000001B3);
    uint64_t sum = UINT64_C(0xCBF29CE484222325), word = 0;
    for (; size >= sizeof word; bytes += sizeof word, size -= (uint32_t)sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * prime;
    }
    if (size == 0) return sum;
    word = 0;
    memcpy(&word, bytes, size);
    return (sum ^ word) * prime;
}

uint64_t sw_service_send(sw_service_connection *to, const unsigned char *bytes, uint32_t size) {
    if (to->sent + size > SW_SERVICE_SEND_BYTES) to->sent = 0;
    memcpy(to->send + to->sent, bytes, size);
    uint64_t sum = checksum_of(to->send + to->sent, size);
    to->sent = (to->sent + size) % SW_SERVICE_SEND_BYTES;
    to->sent_messages++;
    return sum;
}
