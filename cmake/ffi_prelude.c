/* SPDX-License-Identifier: Apache-2.0 */
/* C prelude of the extension spanwise._spanwise; cmake/ffi.cdef.txt declares what Python
 * sees of it.
 */
#include <spanwise/spanwise.h>

#include "ffi_arrow.h"
