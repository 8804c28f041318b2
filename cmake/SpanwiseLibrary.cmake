# SPDX-License-Identifier: Apache-2.0
# libspanwise, static and shared, from one set of position-independent objects (all layers except
# those of the preloads); spanwise_internal, for tests that call internal functions; and the
# preloads, which are libraries for LD_PRELOAD.

set(spanwise_floor "base/*" "os/${SPANWISE_OS}/*" "ds/*")
spanwise_sources(core_sources ${spanwise_floor} "sizeclass/*" "gen/*" "page/*" "span/*" "heap/*"
                 "gc/*" "arena/*" "pool/*" "inspect/*" "guard/*" "trace/*" "simulator/*" "optimize/*" "range/*" "buffer/*"
                 "stack/*")
if(SPANWISE_REUSE)
  spanwise_reused(core_objects spanwise_objects ${core_sources})
  add_library(spanwise_objects OBJECT IMPORTED)
  set_target_properties(spanwise_objects PROPERTIES IMPORTED_OBJECTS "${core_objects}")
  set(all_objects $<TARGET_OBJECTS:spanwise_objects>)
  if(core_objects_own)
    add_library(spanwise_own_objects OBJECT ${core_objects_own})
    spanwise_compile(spanwise_own_objects)
    list(APPEND all_objects $<TARGET_OBJECTS:spanwise_own_objects>)
  endif()
else()
  add_library(spanwise_objects OBJECT ${core_sources})
  spanwise_compile(spanwise_objects)
  target_link_libraries(spanwise_objects PRIVATE spanwise_zstd::zstd Threads::Threads)
  set(all_objects $<TARGET_OBJECTS:spanwise_objects>)
endif()

# An archive of many objects would expose hidden names to programs. So the archive has one object,
# in which hidden names are local.
if(NOT CMAKE_OBJCOPY)
  message(FATAL_ERROR "objcopy was not found: install binutils, or set CMAKE_OBJCOPY")
endif()
set(one_object "${CMAKE_CURRENT_BINARY_DIR}/libspanwise.o")
separate_arguments(c_flags NATIVE_COMMAND "${CMAKE_C_FLAGS}")
add_custom_command(
  OUTPUT "${one_object}"
  COMMAND "${CMAKE_C_COMPILER}" ${c_flags} -r -nostdlib -o "${one_object}"
          ${all_objects}
  COMMAND "${CMAKE_OBJCOPY}" --localize-hidden "${one_object}"
  DEPENDS ${all_objects}
  COMMAND_EXPAND_LISTS VERBATIM)

add_library(spanwise_static STATIC "${one_object}")
add_dependencies(spanwise_static spanwise_objects) # make, unlike ninja, orders by target
if(TARGET spanwise_own_objects)
  add_dependencies(spanwise_static spanwise_own_objects)
endif()
add_library(spanwise_shared SHARED ${all_objects})
add_library(spanwise_internal STATIC EXCLUDE_FROM_ALL ${all_objects})
set_target_properties(spanwise_static spanwise_shared PROPERTIES OUTPUT_NAME spanwise)
foreach(target IN ITEMS spanwise_static spanwise_shared spanwise_internal)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(
    ${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(SPANWISE_SANITIZE)
    target_link_options(${target} INTERFACE -fsanitize=${SPANWISE_SANITIZE})
  endif()
endforeach()
# Users of the archive link zstd and threads through spanwiseConfig.cmake or spanwise.pc.
foreach(target IN ITEMS spanwise_static spanwise_internal)
  target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:spanwise_zstd::zstd> Threads::Threads)
endforeach()
target_link_libraries(spanwise_shared PRIVATE spanwise_zstd::zstd Threads::Threads)
# The names of the CMake package, for projects that have the sources (add_subdirectory, FetchContent).
add_library(spanwise::shared ALIAS spanwise_shared)
add_library(spanwise::static ALIAS spanwise_static)
if(spanwise_USE_STATIC_LIBS)
  add_library(spanwise::spanwise ALIAS spanwise_static)
else()
  add_library(spanwise::spanwise ALIAS spanwise_shared)
endif()
# Before 1.0 each minor version may change the binary interface.
set_target_properties(
  spanwise_shared PROPERTIES VERSION ${PROJECT_VERSION}
                             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
# At grade 3, an object that nothing references verifies the whole heap; it installs itself
# (src/inspect/verify_points.c).
if(SPANWISE_CHECK EQUAL 3)
  target_link_options(spanwise_internal INTERFACE -Wl,-u,sw_verify_every)
endif()
spanwise_link_shared(spanwise_shared)

# A preloaded library exports only names of the C library (SW_API is empty). malloc must not be a
# builtin, or the compiler turns our calloc, written as malloc and memset, into a call of itself.
# memset may be one: with plain -fno-builtin, clearing 16 bytes is a call, and calloc takes twice as
# long.
function(spanwise_compile_preload target)
  spanwise_compile(${target})
  target_compile_definitions(${target} PRIVATE SW_API=)
  target_compile_options(${target} PRIVATE -fno-builtin-malloc -fno-builtin-calloc
                         -fno-builtin-realloc -fno-builtin-free -ftls-model=initial-exec)
  # Remove unused functions, because the file is resident in every program that preloads it.
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
endfunction()

# spanwise_preload(NAME SOURCE...): a preload; the lowest layers are compiled once for all preloads.
function(spanwise_preload name)
  set(target spanwise_${name})
  if(SPANWISE_REUSE)
    spanwise_reused(objects ${target} ${ARGN})
    spanwise_reused(floor spanwise_preload_floor ${floor_sources})
    add_library(${target} SHARED ${objects} ${floor})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  else()
    add_library(${target} SHARED ${ARGN} $<TARGET_OBJECTS:spanwise_preload_floor>)
    spanwise_compile_preload(${target})
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME spanwise-${name})
  target_link_libraries(${target} PRIVATE spanwise_zstd::zstd Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -static-libgcc -Wl,--gc-sections)
  spanwise_link_shared(${target})
endfunction()

# Preloads replace glibc's malloc and call glibc functions; with musl only the library is built.
include(CheckCSourceCompiles)
check_c_source_compiles("#include <features.h>
#ifndef __GLIBC__
#error another C library
#endif
int main(void) { return 0; }" SPANWISE_HAS_GLIBC)

set(spanwise_faces)
if(SPANWISE_HAS_GLIBC AND SPANWISE_OS STREQUAL "linux" AND NOT SPANWISE_SANITIZE)
  spanwise_sources(floor_sources ${spanwise_floor})
  if(NOT SPANWISE_REUSE)
    add_library(spanwise_preload_floor OBJECT ${floor_sources})
    spanwise_compile_preload(spanwise_preload_floor)
  endif()
  spanwise_sources(record_sources "trace/*" "recorder/*")
  spanwise_preload(record ${record_sources})
  target_compile_options(spanwise_record PRIVATE -foptimize-sibling-calls) # see recorder/malloc.c
  # The hooks call each other directly, also in a library that is loaded later (recorder/attach.c).
  target_link_options(spanwise_record PRIVATE -Wl,-Bsymbolic-functions)
  spanwise_sources(malloc_sources "sizeclass/*" "gen/*" "page/*" "span/*" "heap/*"
                   "inspect/*" "guard/*" "preload/*")
  list(FILTER malloc_sources EXCLUDE REGEX "/gen/paths_")
  spanwise_preload(malloc ${malloc_sources})
  target_compile_definitions(spanwise_malloc PRIVATE SW_SPECIALISED=0 SW_COLLECTABLE=0 SW_GUARDABLE=0
                             SW_TOUCH_MAPS=0 SW_OTHER_TABLES=0)
  # Code that runs at the start or end of processes and threads, or only in tracked heaps, is compiled for
  # size to reduce RSS. No recorded call stack passes through files that read options, check tables and heaps, take
  # and write the ledger, or return pages, so they have no unwind tables.
  set_source_files_properties(
    src/preload/report.c src/preload/options.c src/preload/info.c src/preload/account.c src/preload/slow.c
    src/guard/guard.c src/guard/sample.c src/guard/sampling.c src/guard/heaps.c src/guard/report.c
    src/base/fail.c src/ds/meta.c src/sizeclass/table.c
    src/inspect/verify.c src/inspect/audit_lists.c src/inspect/map.c src/inspect/ledger.c src/page/space.c
    src/page/windows.c src/page/purge.c src/heap/cache.c src/heap/registry.c src/heap/trim.c src/heap/heap.c src/heap/checks.c
    src/heap/thread.c src/ds/handle.c src/os/linux/fault.c src/os/linux/descriptors.c src/os/linux/memory.c
    src/os/linux/modules.c src/os/linux/copy.c
    PROPERTIES COMPILE_OPTIONS -Os)
  set_source_files_properties(
    src/preload/report.c src/preload/options.c src/preload/account.c src/inspect/verify.c
    src/inspect/audit_lists.c src/inspect/map.c src/sizeclass/table.c src/heap/checks.c
    src/heap/trim.c src/page/space.c src/page/purge.c src/ds/meta.c
    PROPERTIES COMPILE_OPTIONS "-Os;-fno-asynchronous-unwind-tables")
  list(APPEND spanwise_faces spanwise_record spanwise_malloc)
endif()
