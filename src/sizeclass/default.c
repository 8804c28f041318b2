/* SPDX-License-Identifier: Apache-2.0 */
/* The default table. gen/default.h names it, and a library made by `spanwise build` has its own
 * version of that header; no other file depends on which table is the default. */
#include "gen/default.h"
#include "sizeclass/table.h"

extern const struct sw_table SW_DEFAULT_TABLE;

/* Inline code refers to this symbol of the table that it was compiled for, so that it fails to link
 * or load with a library whose default table is another. */
extern SW_API const char SW_DEFAULT_SYMBOL;
const char SW_DEFAULT_SYMBOL = 1;

const sw_table *sw_table_default(void) { return &SW_DEFAULT_TABLE; }
