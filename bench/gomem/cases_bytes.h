// SPDX-License-Identifier: Apache-2.0
// The cases of bench_gomem.cc that have bytes: lists of buffers and readers, memory allocators, scalable allocators and
// recyclable memory, each as the original's benchmark of that name has it.
#ifndef BENCH_GOMEM_CASES_BYTES_H
#define BENCH_GOMEM_CASES_BYTES_H

#include <algorithm>

#include "cases.h"
#include "spanwise/backing.h"
#include "spanwise/range.h"
#include "spanwise/recyclable.h"

void add_memories();
void add_readers();
void add_blocks(sw_range_backend backend);

#endif
