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
    one->receive = sw_slabs_alloc(all->slabs, SW_SERVICE_RECEIVE_BYTES, 0);
    one->send = sw_slabs_alloc(all->slabs, SW_SERVICE_SEND_BYTES, 0);
    all->open[number] = one;
    all->opened++;
    if (one->receive != NULL && one->send != NULL) return true;
    close_one(all, number);
    return false;
}

bool sw_service_connections_begin(sw_service_connections *all, uint32_t count) {
    *all = (sw_service_connections){.count = count};
    all->open = calloc(count, sizeof(void *));
    if (all->open == NULL || sw_slabs_create(NULL, &all->slabs) != SW_OK) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!open_one(all, i)) return false;
    return true;
}

void sw_service_connections_end(sw_service_connections *all) {
    sw_slabs_destroy(all->slabs); /* also frees the slots of the connections */
    free(all->open);
}

bool sw_service_reconnect(sw_service_connections *all, uint32_t number) {
    close_one(all, number);
    return open_one(all, number);
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
