# SPDX-License-Identifier: Apache-2.0
# Finds zstd, preferably as a static archive: the recorder runs in other programs' processes and the
# wheel on other machines, so neither may depend on its shared library. Defines spanwise_zstd::zstd.
find_path(ZSTD_INCLUDE_DIR zstd.h)
find_library(ZSTD_LIBRARY NAMES libzstd.a zstd)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  zstd
  REQUIRED_VARS ZSTD_LIBRARY ZSTD_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install the zstd development files (Debian: apt-get install libzstd-dev)")
mark_as_advanced(ZSTD_INCLUDE_DIR ZSTD_LIBRARY)
if(zstd_FOUND AND NOT TARGET spanwise_zstd::zstd)
  add_library(spanwise_zstd::zstd UNKNOWN IMPORTED)
  set_target_properties(
    spanwise_zstd::zstd PROPERTIES IMPORTED_LOCATION "${ZSTD_LIBRARY}"
                                   INTERFACE_INCLUDE_DIRECTORIES "${ZSTD_INCLUDE_DIR}")
endif()
