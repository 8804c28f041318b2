/* SPDX-License-Identifier: Apache-2.0 */
/* The default table, which gen/default.h names: the only file that knows its data. */
#include "gen/default.h"
#include "size/table.h"

extern const struct sw_table SW_DEFAULT_TABLE;

/* Inline code refers to the table that it was compiled for by this name, so that it can not be
 * linked to, or loaded with, a library whose default table is another. */
extern SW_API const char SW_DEFAULT_SYMBOL;
const char SW_DEFAULT_SYMBOL = 1;

const sw_table *sw_table_default(void) { return &SW_DEFAULT_TABLE; }
