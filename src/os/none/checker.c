/* SPDX-License-Identifier: Apache-2.0 */
/* Memory checkers of os.h in plain C11: there are none. */
#include "os/os.h"

bool sw_os_is_watched(void) { return false; }

void sw_os_watch_begin(const void *pool) { (void)pool; }

void sw_os_watch_object(const void *pool, const void *p, size_t bytes) {
    (void)pool;
    (void)p;
    (void)bytes;
}

void sw_os_watch_end(const void *pool) { (void)pool; }

void sw_os_watch_forbid(const void *p, size_t bytes) {
    (void)p;
    (void)bytes;
}

void sw_os_watch_allow(const void *p, size_t bytes) {
    (void)p;
    (void)bytes;
}
