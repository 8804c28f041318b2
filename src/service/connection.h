/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: state and buffers from tiered slabs. */
#ifndef SW_SERVICE_CONNECTION_H
#define SW_SERVICE_CONNECTION_H

#include <stdbool.h>

#include "service/service.h"
#include <spanwise/slab.h>

enum { SW_SERVICE_RECEIVE_BYTES = 1024, SW_SERVICE_SEND_BYTES = 4096 };

/* Its own memory is a slot of 256 bytes, as state of such a connection has.
 *   sent < SW_SERVICE_SEND_BYTES */
typedef struct sw_service_connection {
    uint32_t number;
    uint32_t sent; /* where the next reply goes in the send buffer, a ring */
    uint64_t received_messages, sent_messages;
    unsigned char *receive, *send;
    unsigned char state[216];
} sw_service_connection;

/* All of a server. */
typedef struct sw_service_connections {
    sw_slabs *slabs;
    sw_service_connection **open;
    uint32_t count;
    uint64_t opened;
} sw_service_connections;

/* False: no memory; then _end is to be called as well. */
bool sw_service_connections_begin(sw_service_connections *all, uint32_t count);
void sw_service_connections_end(sw_service_connections *all);
/* One closes, and another opens with its number. False: no memory. */
bool sw_service_reconnect(sw_service_connections *all, uint32_t number);
/* Copies bytes into the send buffer; returns their checksum. */
uint64_t sw_service_send(sw_service_connection *to, const unsigned char *bytes, uint32_t size);

#endif
