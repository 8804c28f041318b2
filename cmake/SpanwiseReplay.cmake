# SPDX-License-Identifier: Apache-2.0
# spanwise-replay: plays operations in a process of its own, on the malloc that is preloaded or on a
# heap of ours (docs/design/replay.md). `spanwise replay` starts it. spanwise-rusage: runs a command and
# reports what it used.
set(spanwise_programs)
if(SPANWISE_OS STREQUAL "linux")
  spanwise_sources(replay_sources "replay/*")
  add_executable(spanwise_replay ${replay_sources})
  spanwise_compile(spanwise_replay)
  set_target_properties(spanwise_replay PROPERTIES OUTPUT_NAME spanwise-replay)
  # The compiler must leave calls of malloc as they are: unused pairs of calls are what is measured.
  target_compile_options(spanwise_replay PRIVATE -fno-builtin-malloc -fno-builtin-calloc
                         -fno-builtin-realloc -fno-builtin-free)
  target_link_libraries(spanwise_replay PRIVATE spanwise_internal Threads::Threads
                                                ${CMAKE_DL_LIBS})
  # Runs a command and reports its use of time and memory; `spanwise bench` and the benches start
  # programs by it.
  add_executable(spanwise_rusage "${PROJECT_SOURCE_DIR}/src/rusage_wrapper/main.c")
  spanwise_compile(spanwise_rusage)
  set_target_properties(spanwise_rusage PROPERTIES OUTPUT_NAME spanwise-rusage)
  list(APPEND spanwise_programs spanwise_replay spanwise_rusage)
endif()
