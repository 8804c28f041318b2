/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols for the versions of the records that inline code of public headers reads. A program
 * compiled for another version does not find its symbol, so it fails to link or load. */
#include "spanwise/arena.h"
#include "spanwise/gc_fast.h"
#include "spanwise/pool.h"
#include "spanwise/range.h"
#include "spanwise/stack.h"

const uint32_t sw_arena_abi_1 = 1;
const uint32_t sw_gc_abi_1 = 1;
const uint32_t sw_pool_abi_1 = 1;
const uint32_t sw_range_abi_1 = 1;
const uint32_t sw_stack_abi_1 = 1;
