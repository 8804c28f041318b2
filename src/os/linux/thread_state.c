/* SPDX-License-Identifier: Apache-2.0 */
/* The records of base/thread_state.h on Linux: slots in static memory, then in mappings that are
 * never released. A slot is claimed by one atomic exchange, so there is no lock that a fork would
 * have to take. A thread-specific value points to the thread's slot and frees it when the thread
 * ends. */
#define _GNU_SOURCE
#include "base/thread_state.h"

#include <pthread.h>
#include <string.h>

#include "os/linux/thread_state.h"
#include "os/os.h"

enum { FIRST = 16, MORE_BYTES = 16384 };

typedef struct slot {
    const void *owner; /* atomic: sw_os_here of its thread; NULL: free */
    sw_thread_state state;
} slot;

typedef struct block {
    struct block *older;
    size_t count;
    slot slots[];
} block;

static slot first[FIRST];
static block *newest; /* atomic */
static pthread_key_t key;
static bool has_key;

static slot *find_owned(slot *slots, size_t count, const void *owner) {
    for (size_t i = 0; i < count; i++)
        if (__atomic_load_n(&slots[i].owner, __ATOMIC_ACQUIRE) == owner) return &slots[i];
    return NULL;
}

static slot *claim(slot *slots, size_t count, const void *owner) {
    for (size_t i = 0; i < count; i++) {
        const void *none = NULL;
        if (__atomic_compare_exchange_n(&slots[i].owner, &none, owner, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return &slots[i];
    }
    return NULL;
}

/* Returns the thread's slot if the key has no value yet: pthread_setspecific has called malloc,
 * which called this, or the slot was left by an ended thread with the same address. */
static slot *find_own(const void *here) {
    slot *found = find_owned(first, FIRST, here);
    block *more = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; found == NULL && more != NULL; more = more->older)
        found = find_owned(more->slots, more->count, here);
    return found;
}

static slot *claim_any(const void *here) {
    slot *claimed = claim(first, FIRST, here);
    block *more = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; claimed == NULL && more != NULL; more = more->older)
        claimed = claim(more->slots, more->count, here);
    if (claimed != NULL) return claimed;
    block *made = sw_os_map(MORE_BYTES);
    if (made == NULL) return NULL;
    made->count = (MORE_BYTES - sizeof *made) / sizeof *made->slots;
    made->slots[0].owner = here;
    made->older = __atomic_load_n(&newest, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&newest, &made->older, made, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return &made->slots[0];
}

/* If setting the value fails, nothing frees the slot when the thread ends; a later thread with this
 * address reuses it. */
static sw_thread_state *make(void) {
    const void *here = sw_os_here();
    slot *own = find_own(here);
    if (own != NULL) return &own->state;
    own = claim_any(here);
    if (own == NULL) return NULL;
    (void)pthread_setspecific(key, own);
    return &own->state;
}

static sw_thread_state *find(bool makes) {
    slot *own = has_key ? pthread_getspecific(key) : NULL;
    if (own != NULL) return &own->state;
    return makes && has_key ? make() : NULL;
}

static void leave(void *arg) {
    slot *own = arg;
    memset(&own->state, 0, sizeof own->state);
    __atomic_store_n(&own->owner, NULL, __ATOMIC_RELEASE);
}

void sw_os_thread_state_start(void) {
    has_key = pthread_key_create(&key, leave) == 0;
    sw_thread_state_find = find;
}
