# SPDX-License-Identifier: Apache-2.0 The C code of examples/lessons and examples/service, as a
# static library that includes only public headers. The Python extension, the unit tests of the
# examples and bench_arenas link it; libspanwise does not.
file(GLOB example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*/*.c")
add_library(spanwise_examples STATIC EXCLUDE_FROM_ALL ${example_sources})
spanwise_compile(spanwise_examples)
set_target_properties(spanwise_examples PROPERTIES
  INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/include;${PROJECT_SOURCE_DIR}/examples")
target_include_directories(spanwise_examples INTERFACE "${PROJECT_SOURCE_DIR}/examples")
