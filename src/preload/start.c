/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/start.h"

#include <string.h>

#include "base/assert.h"
#include "guard/guard.h"
#include "heap/default.h"
#include "heap/fork.h"
#include "preload/account.h"
#include "preload/options.h"

static sw_os_lock start_lock;
static uint32_t started; /* atomic */

/* After a thread's thread-specific data is destroyed, the C library still calls free in that
 * thread. A cache opened for it then would never be closed, so all such threads share this one. */
static sw_os_lock late_lock;
static sw_cache *late_cache;

static struct {
    uint64_t pid;    /* of the process whose ledger it is; 0: there is no heap yet */
    uint32_t closed; /* atomic; 1: the ledger is written, being written, or not requested */
} claim;

sw_cache *preload_late_cache_acquire(sw_heap *heap) {
    sw_os_lock_acquire(&late_lock);
    if (late_cache == NULL) (void)sw_cache_open(heap, &late_cache);
    return late_cache;
}

void preload_late_cache_release(void) { sw_os_lock_release(&late_lock); }

/* --- whose ledger ----------------------------------------------------------------------------- */

static void begin_report(void) {
    claim.pid = sw_os_process_id();
    bool wanted = preload_option.ledger[0] != '\0' ||
                  preload_option.ledger_file != PRELOAD_NO_FILE || preload_option.verbose;
    if (!wanted) claim.closed = 1;
}

/* Called in a fork child. The file of a path without %p belongs to the parent, and so does a
 * descriptor, so the child does not write to them. */
static void begin_child_report(void) {
    claim.pid = sw_os_process_id();
    bool own = strstr(preload_option.ledger, "%p") != NULL;
    if (!own && !preload_option.verbose) claim.closed = 1;
    if (!own) preload_option.ledger[0] = '\0';
    preload_option.ledger_file = PRELOAD_NO_FILE;
}

bool preload_report_is_due(void) { return __atomic_load_n(&claim.closed, __ATOMIC_ACQUIRE) == 0; }

bool preload_claim_report(void) {
    if (claim.pid == 0 || claim.pid != sw_os_process_id()) return false;
    return __atomic_exchange_n(&claim.closed, 1, __ATOMIC_ACQ_REL) == 0;
}

/* --- forks ------------------------------------------------------------------------------------ */

static void fork_prepare(void) {
    sw_os_lock_acquire(&late_lock);
    preload_account_lock();
    sw_guard_fork_prepare();
}

static void fork_parent(void) {
    sw_guard_fork_parent();
    preload_account_unlock();
    sw_os_lock_release(&late_lock);
}

static void fork_child(void) {
    sw_guard_fork_child();
    preload_account_reset();
    sw_os_lock_reset(&late_lock);
    begin_child_report();
}

/* Handlers that prepare a fork run in reverse order of their registration, so the locks here are
 * taken before the heap's. */
static void register_fork(void) {
    sw_fork_register();
    (void)sw_os_at_fork(fork_prepare, fork_parent, fork_child);
}

/* --- the heap --------------------------------------------------------------------------------- */

/* Creates the default heap. It calls nothing that allocates before the heap exists. Without memory
 * for the heap, the next call tries again. */
static sw_cold sw_heap *start(void) {
    bool first = false;
    sw_os_lock_acquire(&start_lock);
    if (started == 0) {
        preload_read_options();
        sw_check2(preload_options_check(&preload_option));
        first = sw_heap_default_init(&preload_option.heap) == SW_OK;
        if (first && preload_option.protect != 0)
            sw_guard_start(sw_heap_default(), preload_option.protect);
        __atomic_store_n(&started, first, __ATOMIC_RELEASE);
    }
    bool ready = started != 0;
    sw_os_lock_release(&start_lock);
    if (first) {
        register_fork();
        begin_report();
    }
    return ready ? sw_heap_default() : NULL;
}

sw_heap *preload_heap(void) {
    return sw_likely(__atomic_load_n(&started, __ATOMIC_ACQUIRE) != 0) ? sw_heap_default()
                                                                       : start();
}
