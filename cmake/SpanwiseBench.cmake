# SPDX-License-Identifier: Apache-2.0
# Each bench/bench_*.c and bench/bench_*.cc is one program; C++ ones use google-benchmark.
# `ctest -L bench` runs each once, short.
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/bench_*.c"
     "${PROJECT_SOURCE_DIR}/bench/bench_*.cc")
set(cxx_sources ${bench_sources})
list(FILTER cxx_sources INCLUDE REGEX "\\.cc$")
if(cxx_sources)
  enable_language(CXX)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    message(FATAL_ERROR "SPANWISE_BENCH=ON needs google-benchmark, which was not found: install it "
                        "(Debian: apt-get install libbenchmark-dev) or set benchmark_DIR")
  endif()
endif()

foreach(source IN LISTS bench_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  spanwise_compile(${name})
  target_link_libraries(${name} PRIVATE spanwise_static m)
  set(arguments)
  if(source MATCHES "\\.cc$")
    target_link_libraries(${name} PRIVATE benchmark::benchmark)
    set(arguments --benchmark_min_time=0.01)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arguments})
  set_tests_properties(${name} PROPERTIES LABELS bench TIMEOUT 600)
endforeach()
