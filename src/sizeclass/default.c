/* SPDX-License-Identifier: Apache-2.0 */
/* The default table. gen/default.h names it, and a library that `spanwise build` makes has its own
 * version of that header; no other file knows which table is the default one. */
#include "gen/default.h"
#include "sizeclass/table.h"

extern const struct sw_table SW_DEFAULT_TABLE;

/* Inline code refers to the table that it was compiled for by this name, so that it can not be
 * linked to, or loaded with, a library whose default table is another. */
extern SW_API const char SW_DEFAULT_SYMBOL;
const char SW_DEFAULT_SYMBOL = 1;

const sw_table *sw_table_default(void) { return &SW_DEFAULT_TABLE; }
