# SPDX-License-Identifier: Apache-2.0
# spanwise-replay replays operations in a separate process, on the preloaded malloc or on a spanwise
# heap (docs/design/replay.md). `spanwise replay` starts it.
set(spanwise_programs)
if(SPANWISE_OS STREQUAL "linux")
  spanwise_sources(replay_sources "replay/*")
  add_executable(spanwise_replay ${replay_sources})
  spanwise_compile(spanwise_replay)
  set_target_properties(spanwise_replay PROPERTIES OUTPUT_NAME spanwise-replay)
  # The compiler must not remove unused pairs of malloc and free, which are what is measured.
  target_compile_options(spanwise_replay PRIVATE -fno-builtin-malloc -fno-builtin-calloc
                         -fno-builtin-realloc -fno-builtin-free)
  target_link_libraries(spanwise_replay PRIVATE spanwise_internal Threads::Threads
                                                ${CMAKE_DL_LIBS})
  # spanwise-rusage runs a command and reports its CPU time and memory; `spanwise bench` and the
  # benches start programs with it.
  add_executable(spanwise_rusage "${PROJECT_SOURCE_DIR}/src/rusage_wrapper/main.c")
  spanwise_compile(spanwise_rusage)
  set_target_properties(spanwise_rusage PROPERTIES OUTPUT_NAME spanwise-rusage)
  list(APPEND spanwise_programs spanwise_replay spanwise_rusage)
endif()
