/* SPDX-License-Identifier: Apache-2.0 */
/* The specialised paths of the default table, which gen/default.h names. */
#ifndef SW_HEAP_DEFAULT_H
#define SW_HEAP_DEFAULT_H

#include "gen/default.h"
#include "heap/template.h"

extern const sw_paths SW_DEFAULT_PATHS;
extern const uint32_t SW_DEFAULT_CUTOFF;      /* bytes */
extern sw_path_fn *const SW_DEFAULT_NOSCAN[]; /* by size in bytes, 0 .. SW_DEFAULT_CUTOFF */

#endif
