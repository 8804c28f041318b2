# SPDX-License-Identifier: Apache-2.0
# Each tests/unit/test_*.c is one program with its own main. It is linked with the library's objects
# and may include internal headers. `ctest -L unit` runs them.
file(GLOB unit_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/unit/test_*.c")

# Tests that need features that src/os/none lacks: thread exit, fork, the recorder and its stack
# walk, large reservations of addresses and limits on them, madvise, locks that report waiters.
set(spanwise_needs_linux
    "^(addresses|arena_safe|collector_assists|collector_attach|collector_concurrent|collector_conservative|collector_ephemerons|collector_events|collector_finalizers|collector_inside|collector_mutators|collector_parallel|collector_protocol|collector_roots|collector_signals|collector_stop|collector_tiny|collector_unjoined|guard|thread|preload_grades|fork|hints_interleaved|record|space|unwind|limits|purge|refused|touched_pages|verify)")

# Start the longest tests first, so that no processor waits for one long test at the end.
set(spanwise_long collector collector_steps fork heap hints large limits misuse
    optimize refused_calls refused_memory span thread_burst thread_kept threads touched_pages trace_damage)

# Tests that an emulator cannot run (label `native`): it prints its own line when a program aborts
# (fail, grades, memory_grades); limits of memory and addresses also apply to it (addresses, limits,
# runner); forks while threads run break it (collector_assists, collector_attach, collector_roots, threads,
# thread_burst, fork, purge); some tests take minutes (runner, threads, trace_damage);
# its madvise and RSS differ from the kernel's (refused_calls, refused_memory, touched_pages); it
# reads no memory by process_vm_readv (collector_conservative). A model is the same on each processor
# (collector_protocol).
set(spanwise_needs_native
    addresses arena_safe collector_assists collector_attach collector_concurrent collector_conservative collector_events collector_finalizers collector_mutators collector_protocol collector_roots collector_stop guard guard_heaps preload_grades fail fork grades limits memory_grades purge refused_calls refused_memory runner thread_burst threads
    touched_pages trace_damage)

# gold takes half the time to link the 90 programs of a preset, each with the whole library.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold SPANWISE_HAS_GOLD)
set(spanwise_test_linker)
if(SPANWISE_HAS_GOLD)
  set(spanwise_test_linker -fuse-ld=gold)
endif()

foreach(source IN LISTS unit_sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" module "${name}")
  if(SPANWISE_OS STREQUAL "none" AND module MATCHES "${spanwise_needs_linux}")
    continue()
  endif()
  # Tests compare the recorder's stack walk with glibc's; the preloads' structs need glibc.
  if(NOT SPANWISE_HAS_GLIBC AND module MATCHES "^(unwind|recorder_walks|preload_grades)$")
    continue()
  endif()
  # These need x86-64: the recorder's CFI rules (recorder_walks), and single steps that stop at each
  # instruction (collector_inside). With a sanitizer or grade 3, code takes ten times as many steps,
  # and a step could stop ThreadSanitizer while it holds its locks.
  if(module STREQUAL "collector_inside" AND (SPANWISE_SANITIZE OR SPANWISE_CHECK EQUAL 3))
    continue()
  endif()
  if(module MATCHES "^(recorder_walks|collector_inside)$" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    continue()
  endif()
  # The stack walk knows x86-64. ThreadSanitizer and MemorySanitizer delay signals.
  if(module STREQUAL "collector_signals" AND (SPANWISE_SANITIZE MATCHES "thread|memory"
     OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$"))
    continue()
  endif()
  # ThreadSanitizer cannot find anything in tests with one thread at a time (addresses, limits),
  # and takes ten times as long.
  # many_parts tests the library's own thread, which finishes a recording.
  file(STRINGS "${source}" starts_threads REGEX "pthread_create|start_each|start_threads|in_thread|many_parts")
  if(SPANWISE_SANITIZE STREQUAL "thread"
     AND (NOT starts_threads OR module MATCHES "^(addresses|limits)$"))
    continue()
  endif()
  # A thread that has not joined a collector races with it by definition.
  if(SPANWISE_SANITIZE STREQUAL "thread" AND module STREQUAL "collector_unjoined")
    continue()
  endif()
  # These tests have no heaps, which grade 3 would check; asan-ubsan runs them at grade 2. Grade 3
  # runs a quarter of trace_damage's cases (CONTRIBUTING.md).
  if(SPANWISE_CHECK EQUAL 3 AND SPANWISE_OS STREQUAL "linux"
     AND module MATCHES "^(trace_|optimize|unwind)" AND NOT module STREQUAL "trace_damage")
    continue()
  endif()
  # The stack walk reads saved registers, which MemorySanitizer considers uninitialised.
  if(SPANWISE_SANITIZE STREQUAL "memory" AND module MATCHES "^(unwind|recorder_walks)$")
    continue()
  endif()
  # Test code does not depend on the operating system.
  set(test_object "${SPANWISE_REUSE}/CMakeFiles/${name}.dir/tests/unit/${name}.c.o")
  if(SPANWISE_REUSE AND EXISTS "${test_object}")
    set_source_files_properties("${test_object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_executable(${name} "${test_object}")
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
  else()
    add_executable(${name} "${source}")
  endif()
  spanwise_compile(${name})
  # Optimise tests with inline paths as in users' programs. Optimising the others takes the compiler
  # longer than the test gains, except for two under an emulator.
  file(STRINGS "${source}" has_inline_paths REGEX "spanwise/fast\\.h")
  if(CMAKE_CROSSCOMPILING AND module MATCHES "^(scalable|heap)$")
    target_compile_options(${name} PRIVATE -O1)
  elseif(NOT has_inline_paths)
    target_compile_options(${name} PRIVATE -O0)
  elseif(SPANWISE_CHECK EQUAL 3)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  if(module STREQUAL "collector_signals")
    target_link_libraries(${name} PRIVATE spanwise_shared)
  else()
    target_link_libraries(${name} PRIVATE spanwise_internal m)
  endif()
  target_link_options(${name} PRIVATE ${spanwise_test_linker})
  if(module STREQUAL "preload_grades") # tests only the checks of the preloads and the replayer
    foreach(room IN ITEMS recorder preload replay)
      target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src/${room}/checks.c")
    endforeach()
  endif()
  if(module STREQUAL "recorder_walks") # the test replaces the rest of the recorder
    foreach(file IN ITEMS site checks)
      target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src/recorder/${file}.c")
    endforeach()
  endif()
  if(module STREQUAL "python_layout")
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src/recorder/python_layout.c")
  endif()
  if(module MATCHES "^collector_(conservative|attach)$") # these tests load a library
    if(NOT TARGET test_holder)
      add_library(test_holder MODULE "${PROJECT_SOURCE_DIR}/tests/unit/plugin/holder.c")
      spanwise_compile(test_holder)
    endif()
    target_compile_definitions(${name} PRIVATE "TESTS_HOLDER=\"$<TARGET_FILE:test_holder>\"")
    add_dependencies(${name} test_holder)
    target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  endif()
  add_test(NAME unit.${module} COMMAND ${name})
  if(module STREQUAL "collector_conservative" AND SPANWISE_SANITIZE MATCHES "address")
    add_test(NAME unit.${module}_fake_stack COMMAND ${name})
    set_tests_properties(unit.${module}_fake_stack PROPERTIES LABELS unit TIMEOUT 1200
      ENVIRONMENT "ASAN_OPTIONS=detect_stack_use_after_return=1")
  endif()
  set(labels unit)
  if(module IN_LIST spanwise_needs_native)
    list(APPEND labels native)
  endif()
  set_tests_properties(unit.${module} PROPERTIES LABELS "${labels}" TIMEOUT 1200)
  if(module IN_LIST spanwise_long)
    set_tests_properties(unit.${module} PROPERTIES COST 10)
  endif()
endforeach()

# Fuzz targets, one per backend of range allocators, with our inputs or with libFuzzer's.
if(NOT SPANWISE_SANITIZE STREQUAL "thread")
  foreach(backend IN ITEMS btree treap two_treaps buddy)
    set(fuzz fuzz_range_${backend})
    string(TOUPPER ${backend} upper)
    add_executable(${fuzz} "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_range.c")
    spanwise_compile(${fuzz})
    target_compile_definitions(${fuzz} PRIVATE FUZZ_BACKEND=SW_RANGE_${upper})
    target_include_directories(${fuzz} PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
    target_link_libraries(${fuzz} PRIVATE spanwise_internal)
    if(SPANWISE_FUZZ)
      target_compile_options(${fuzz} PRIVATE -fsanitize=fuzzer -DSPANWISE_FUZZ)
      target_link_options(${fuzz} PRIVATE -fsanitize=fuzzer)
    else()
      add_test(NAME fuzz.range_${backend} COMMAND ${fuzz} --operations 20000)
      set_tests_properties(fuzz.range_${backend} PROPERTIES LABELS unit TIMEOUT 1200)
    endif()
  endforeach()
endif()

# The C++ header, if there is a C++ compiler (a cross build may have none). The test has no threads
# for ThreadSanitizer; MemorySanitizer reports memory that the C++ library has initialised.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT SPANWISE_SANITIZE MATCHES "thread|memory")
  enable_language(CXX)
  foreach(standard IN ITEMS 11 17)
    add_executable(test_allocator_${standard} "${PROJECT_SOURCE_DIR}/tests/unit/test_allocator.cpp")
    spanwise_compile(test_allocator_${standard})
    set_target_properties(test_allocator_${standard} PROPERTIES CXX_STANDARD ${standard}
                                                                CXX_STANDARD_REQUIRED ON)
    target_link_libraries(test_allocator_${standard} PRIVATE spanwise_static m)
    add_test(NAME unit.allocator_${standard} COMMAND test_allocator_${standard})
    set_tests_properties(unit.allocator_${standard} PROPERTIES LABELS unit TIMEOUT 1200)
  endforeach()
endif()

# Real serializers with memory from an arena. If their compilers or libraries are missing, the test
# is skipped and names them.
if(CMAKE_CXX_COMPILER AND SPANWISE_CHECK MATCHES "[12]" AND NOT SPANWISE_SANITIZE
   AND SPANWISE_OS STREQUAL "linux" AND NOT CMAKE_CROSSCOMPILING)
  include("${PROJECT_SOURCE_DIR}/cmake/SpanwiseSerializers.cmake")
endif()

find_program(test_valgrind valgrind)
if(test_valgrind AND NOT SPANWISE_SANITIZE AND SPANWISE_OS STREQUAL "linux" AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME unit.arena_valgrind
           COMMAND sh "${PROJECT_SOURCE_DIR}/tests/install/arena_valgrind.sh" "${test_valgrind}"
                   "$<TARGET_FILE:test_arena_checkers>")
  set_tests_properties(unit.arena_valgrind PROPERTIES LABELS "unit;native" TIMEOUT 1200)
endif()

if(NOT SPANWISE_SANITIZE)
  # Check that both libraries export exactly the names that the headers declare.
  foreach(linkage IN ITEMS shared static)
    add_test(NAME exports.${linkage}
             COMMAND sh "${PROJECT_SOURCE_DIR}/tests/install/exports.sh" "${CMAKE_NM}"
                     "$<TARGET_FILE:spanwise_${linkage}>" "${CMAKE_C_COMPILER}"
                     "${PROJECT_SOURCE_DIR}/include")
    set_tests_properties(exports.${linkage} PROPERTIES LABELS unit)
  endforeach()
endif()

# Threads that use a shared library may outlive its dlclose.
if(NOT SPANWISE_SANITIZE AND SPANWISE_OS STREQUAL "linux")
  add_executable(dlclose "${PROJECT_SOURCE_DIR}/tests/install/dlclose.c")
  spanwise_compile(dlclose)
  target_link_libraries(dlclose PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  foreach(library IN ITEMS spanwise_shared ${spanwise_faces})
    add_test(NAME dlclose.${library} COMMAND dlclose $<TARGET_FILE:${library}>)
    set_tests_properties(dlclose.${library} PROPERTIES LABELS "unit;native")
  endforeach()
endif()

if(SPANWISE_OS STREQUAL "linux" AND SPANWISE_HAS_GLIBC)
  add_executable(example_threads "${PROJECT_SOURCE_DIR}/examples/threads.c")
  spanwise_compile(example_threads)
  target_link_libraries(example_threads PRIVATE spanwise_static)
  add_test(NAME example.threads COMMAND example_threads)
  set_tests_properties(example.threads PROPERTIES LABELS "unit;native"
    PASS_REGULAR_EXPRESSION "^0 wrong values, cycles: several")
endif()

# Call every function with a bad pointer for each of its pointers.
find_program(spanwise_python python3)
if(spanwise_python AND NOT SPANWISE_SANITIZE AND SPANWISE_OS STREQUAL "linux"
   AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME bad_arguments
           COMMAND "${spanwise_python}" "${PROJECT_SOURCE_DIR}/tests/install/bad_arguments.py"
                   "${CMAKE_C_COMPILER}" $<TARGET_FILE:spanwise_shared>)
  set_tests_properties(bad_arguments PROPERTIES LABELS "unit;native" TIMEOUT 600)
endif()

if(SPANWISE_OS STREQUAL "none")
  add_test(NAME portable.static
           COMMAND sh "${PROJECT_SOURCE_DIR}/tests/install/portable.sh" "${CMAKE_NM}"
                   "$<TARGET_FILE:spanwise_static>")
  set_tests_properties(portable.static PROPERTIES LABELS unit)
endif()

if(TARGET spanwise_malloc)
  include(SpanwisePreload)
endif()
