# SPDX-License-Identifier: Apache-2.0
# The benches (docs/design/bench.md). With the preset `bench`, ctest runs every row and writes JSON;
# elsewhere it runs each row briefly. bench/run.py compares with other allocators.
#
#   bench_malloc         malloc through the dynamic linker; does not link the library
#   bench_spanwise       the library, linked statically;  bench_spanwise_bare: without checks
#   bench_peer_<name>    another allocator, linked: Debian's mimalloc, or one that the user supplies
#                        in SPANWISE_PEER_<NAME>_DIR (include/ or headers, and library)
#   bench_arenas         arenas and pools, and a minimal bump allocator
#   bench_ranges         range allocators, and simple reference implementations in C
#   bench_buffers        multi-buffer memory, readers and stacks, and simple references in C
#   bench_collectors     our collector: ROW SIZE prints one figure;  _boehm: with Debian's libgc
#   bench_patterns       allocation patterns under a preloaded malloc;  _phases: with its own clock
#   bench_paths          loops for callgrind (bench/instructions.py);  _bare: without checks;
#                        _malloc: with the malloc of a preloaded library
#   bench_threads_check  checks time and count of the rows with several threads
enable_language(CXX)
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "google-benchmark was not found: it is fetched (Debian: libbenchmark-dev)")
  include(FetchContent)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  FetchContent_Declare(benchmark GIT_REPOSITORY https://github.com/google/benchmark.git
                       GIT_TAG eddb0241389718a23a42db6af5f0164b6e0139af) # v1.9.4
  FetchContent_MakeAvailable(benchmark)
endif()
set(SPANWISE_BENCH_SECONDS 0.001 CACHE STRING "least time of a google-benchmark row under ctest")
set(bench_results "${PROJECT_BINARY_DIR}/bench")
file(MAKE_DIRECTORY "${bench_results}")

set(bench_dir "${PROJECT_SOURCE_DIR}/bench")
set(bench_micro "${bench_dir}/micro")
set(bench_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE}")

# For tests that run each row once and do not check times. Saves a minute of compile time.
option(SPANWISE_BENCH_SHORT "compile google-benchmark programs with -O0; their times mean nothing" OFF)
set(bench_short)
if(SPANWISE_BENCH_SHORT)
  set(bench_short -O0)
  string(APPEND bench_compiler " -O0")
endif()

# bench_executable(NAME SOURCE [LIBRARY...]): a google-benchmark program.
function(bench_executable name source)
  add_executable(${name} "${source}")
  spanwise_compile(${name})
  set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  target_include_directories(${name} PRIVATE "${bench_micro}")
  target_compile_definitions(${name} PRIVATE BENCH_COMPILER="${bench_compiler}")
  target_compile_options(${name} PRIVATE -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-free)
  # A loop that begins in the middle of a cache line may take a fifth longer, so align the loops of
  # all contenders.
  target_compile_options(${name} PRIVATE -falign-loops=64 ${bench_short})
  target_link_libraries(${name} PRIVATE ${ARGN} benchmark::benchmark Threads::Threads
                                        ${CMAKE_DL_LIBS})
endfunction()

# bench_test(NAME COMMAND...)
function(bench_test name)
  add_test(NAME bench.${name} COMMAND ${ARGN})
  set_tests_properties(bench.${name} PROPERTIES LABELS bench TIMEOUT 1200)
endfunction()

# bench_program(NAME SOURCE [LIBRARY...]): a program that bench/run.py compares, and its test.
function(bench_program name source)
  bench_executable(${name} ${source} ${ARGN})
  # Omit the rows that hold gigabytes.
  bench_test(${name} ${name} --benchmark_min_time=${SPANWISE_BENCH_SECONDS}
             --benchmark_filter=-/growth/.00M|/growth/.G
             --benchmark_out=${bench_results}/${name}.json)
endfunction()

bench_executable(bench_threads_check "${bench_micro}/threads_check.cc")
bench_test(threads_check bench_threads_check)

bench_program(bench_malloc "${bench_micro}/bench_malloc.cc")
bench_program(bench_spanwise "${bench_micro}/bench_spanwise.cc" spanwise_static)

bench_program(bench_ranges "${bench_dir}/ranges/bench_ranges.cc" spanwise_internal)
target_sources(bench_ranges PRIVATE "${bench_dir}/ranges/reference_single.c"
                                    "${bench_dir}/ranges/reference_two.c"
                                    "${bench_dir}/ranges/reference_buddy.c")
target_include_directories(bench_ranges PRIVATE "${bench_dir}/ranges")

bench_program(bench_arenas "${bench_dir}/arenas/bench_arenas.cc" spanwise_examples spanwise_static m)

# Collectors: ours, and Debian's libgc if its headers are installed. Its <gc.h> includes "gc/gc.h",
# so src/, which has a header of that name, must not be an include folder.
function(bench_collector name source)
  add_executable(${name} "${bench_dir}/collectors/${source}")
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  target_link_libraries(${name} PRIVATE ${ARGN})
  bench_test(${name} ${name} random 1000)
endfunction()
bench_collector(bench_collectors bench_collectors.c spanwise_static)
bench_test(bench_collectors_messages bench_collectors messages_arena 1000)
bench_test(bench_collectors_concurrent bench_collectors concurrent 1000)
find_path(bench_boehm_include gc.h)
find_library(bench_boehm_library gc)
if(bench_boehm_include AND bench_boehm_library)
  bench_collector(bench_collectors_boehm peer_boehm.c "${bench_boehm_library}")
  target_include_directories(bench_collectors_boehm SYSTEM PRIVATE "${bench_boehm_include}")
endif()

bench_program(bench_buffers "${bench_dir}/buffers/bench_buffers.cc" spanwise_internal)
target_sources(bench_buffers PRIVATE "${bench_dir}/buffers/reference_buffers.c"
                                     "${bench_dir}/ranges/reference_single.c")
target_include_directories(bench_buffers PRIVATE "${bench_dir}/buffers" "${bench_dir}/ranges")

# The cost of the checks: the heap and the inline paths with SW_CHECK=0 (the `bare` preset).
spanwise_sources(bare_sources ${spanwise_floor} "sizeclass/*" "gen/*" "page/*" "span/*" "heap/*" "inspect/*"
                 "guard/*")
add_library(spanwise_bare STATIC EXCLUDE_FROM_ALL ${bare_sources})
spanwise_compile(spanwise_bare)
set(bench_bare -USW_CHECK -DSW_CHECK=0 -DSW_FAST_CHECKED=0)
target_compile_options(spanwise_bare PRIVATE ${bench_bare})
target_link_libraries(spanwise_bare PUBLIC spanwise_zstd::zstd Threads::Threads)
bench_program(bench_spanwise_bare "${bench_micro}/bench_spanwise.cc" spanwise_bare)
target_compile_definitions(bench_spanwise_bare PRIVATE BENCH_BARE=1)
target_compile_options(bench_spanwise_bare PRIVATE ${bench_bare})

# --- allocation patterns: whole programs under a preloaded malloc
# ----------------------------------

# bench_pattern_program(NAME SOURCE...)
function(bench_pattern_program name)
  list(TRANSFORM ARGN PREPEND "${bench_dir}/patterns/")
  add_executable(${name} ${ARGN})
  spanwise_compile(${name})
  target_compile_options(${name} PRIVATE -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc
                                         -fno-builtin-free)
  target_link_libraries(${name} PRIVATE Threads::Threads)
endfunction()

bench_pattern_program(bench_patterns main.c replace.c bursts.c cross.c latency.c build.c link.c spawn.c)
bench_pattern_program(bench_patterns_phases phases.c)
target_link_libraries(bench_patterns_phases PRIVATE m)
# Export the program's clock, which the preloaded allocator then uses.
set_target_properties(bench_patterns_phases PROPERTIES ENABLE_EXPORTS ON)
bench_test(patterns bench_patterns random-1k 1)
bench_test(patterns_phases bench_patterns_phases 1)

# --- linked peers ---------------------------------------------------------------------------------

find_package(mimalloc QUIET)
if(mimalloc_FOUND AND TARGET mimalloc)
  bench_program(bench_peer_mimalloc "${bench_micro}/bench_peer_mimalloc.cc" mimalloc)
  find_path(bench_mimalloc_include mimalloc.h HINTS "${MIMALLOC_INCLUDE_DIR}"
            PATH_SUFFIXES mimalloc-2.0 mimalloc-2.1 mimalloc-2.2 mimalloc-3.0)
  target_include_directories(bench_peer_mimalloc SYSTEM PRIVATE "${bench_mimalloc_include}")
endif()

# bench_peer(NAME SOURCE HEADER [LIBRARY]): a peer that the user supplies. An archive with LTO code
# is inlined into the loops, as our library is.
function(bench_peer name source header)
  string(TOUPPER ${name} upper)
  set(SPANWISE_PEER_${upper}_DIR "" CACHE PATH "headers and library of ${name}, for the benches")
  set(SPANWISE_PEER_${upper}_VERSION "" CACHE STRING "its version, if it does not report one")
  set(dir "${SPANWISE_PEER_${upper}_DIR}")
  if(dir STREQUAL "")
    return()
  endif()
  find_path(bench_${name}_include ${header} PATHS "${dir}" PATH_SUFFIXES include src
            NO_DEFAULT_PATH)
  if(NOT bench_${name}_include)
    message(FATAL_ERROR "SPANWISE_PEER_${upper}_DIR is '${dir}': there is no ${header} in it, in "
                        "include/ or in src/; give the directory of ${name}'s headers and library")
  endif()
  set(library)
  if(ARGN)
    find_library(bench_${name}_library NAMES ${ARGN} PATHS "${dir}"
                 PATH_SUFFIXES lib lib64 build out NO_DEFAULT_PATH)
    if(NOT bench_${name}_library)
      message(FATAL_ERROR "SPANWISE_PEER_${upper}_DIR is '${dir}': there is no library "
                          "'${ARGN}' in it, in lib/ or in build/; build ${name} first")
    endif()
    set(library "${bench_${name}_library}")
  endif()
  bench_program(bench_peer_${name} "${bench_micro}/${source}" ${library})
  target_include_directories(bench_peer_${name} SYSTEM PRIVATE "${bench_${name}_include}")
  target_compile_definitions(bench_peer_${name}
                             PRIVATE BENCH_PEER_VERSION="${SPANWISE_PEER_${upper}_VERSION}")
  if(library MATCHES "\\.a$" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(bench_peer_${name} PRIVATE -flto=auto)
    target_link_options(bench_peer_${name} PRIVATE -flto=auto -O3)
  endif()
endfunction()

bench_peer(mimalloc3 bench_peer_mimalloc.cc mimalloc.h libmimalloc.a libmimalloc-static.a)
bench_peer(rpmalloc bench_peer_rpmalloc.cc rpmalloc.h librpmalloc.a librpmallocwrap.a)
bench_peer(snmalloc bench_peer_snmalloc.cc snmalloc/snmalloc.h)
if(TARGET bench_peer_snmalloc)
  set_target_properties(bench_peer_snmalloc PROPERTIES CXX_STANDARD 20)
  target_compile_definitions(bench_peer_snmalloc PRIVATE SNMALLOC_USE_WAIT_ON_ADDRESS=1)
  target_compile_options(bench_peer_snmalloc PRIVATE -mcx16)
  target_link_libraries(bench_peer_snmalloc PRIVATE atomic)
endif()

# --- instruction counts ---------------------------------------------------------------------------

# bench_paths_program(NAME SOURCE [LIBRARY...])
function(bench_paths_program name source)
  add_executable(${name} "${bench_micro}/paths.c" "${source}")
  spanwise_compile(${name})
  target_include_directories(${name} PRIVATE "${bench_micro}")
  target_compile_definitions(${name} PRIVATE BENCH_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
  target_compile_options(${name} PRIVATE -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-free)
  target_link_libraries(${name} PRIVATE ${ARGN})
endfunction()

bench_paths_program(bench_paths "${bench_micro}/paths_spanwise.c" spanwise_static)
bench_paths_program(bench_paths_bare "${bench_micro}/paths_spanwise.c" spanwise_bare)
target_compile_options(bench_paths_bare PRIVATE ${bench_bare})
bench_paths_program(bench_paths_malloc "${bench_micro}/paths_malloc.c")

find_program(bench_valgrind valgrind)
find_program(bench_python python3)
if(bench_valgrind AND bench_python AND NOT SPANWISE_SANITIZE)
  bench_test(instructions "${bench_python}" "${bench_dir}/instructions.py" --check --build
             "${PROJECT_BINARY_DIR}")
  set_tests_properties(bench.instructions PROPERTIES COST 20 SKIP_RETURN_CODE 77)
endif()
