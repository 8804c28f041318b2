/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the server: their state and buffers come from tiered slabs. */
#ifndef SW_SERVICE_CONNECTION_H
#define SW_SERVICE_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "service/service.h"
#include <spanwise/slab.h>

enum { SW_SERVICE_RECEIVE_BYTES = 1024, SW_SERVICE_SEND_BYTES = 4096 };

/* A connection. The record fills a slot of 256 bytes.
 *   sent < SW_SERVICE_SEND_BYTES */
typedef struct sw_service_connection {
    uint32_t number;
    uint32_t sent; /* offset of the next reply in the send buffer, a ring */
    uint64_t received_messages, sent_messages;
    unsigned char *receive, *send;
    unsigned char state[216];
} sw_service_connection;

/* All connections of a server.
 *   open[i] and its record: under locks[i], unless one thread serves */
typedef struct sw_service_connections {
    sw_slabs *slabs;
    sw_service_connection **open;
    pthread_mutex_t *locks; /* NULL: one thread serves */
    uint32_t count;
    _Atomic uint64_t opened;
} sw_service_connections;

/* Open `count` connections. False: no memory; call sw_service_connections_end all the same. */
bool sw_service_connections_begin(sw_service_connections *all, uint32_t count, bool is_shared);
void sw_service_connections_end(sw_service_connections *all);
/* Close a connection, and open another one with its number. False: no memory. */
bool sw_service_reconnect(sw_service_connections *all, uint32_t number);
/* Lock a connection and return it. */
sw_service_connection *sw_service_lock(sw_service_connections *all, uint32_t number);
void sw_service_unlock(sw_service_connections *all, uint32_t number);
/* Copy bytes into the send buffer; return their checksum. */
uint64_t sw_service_send(sw_service_connection *to, const unsigned char *bytes, uint32_t size);

#endif
