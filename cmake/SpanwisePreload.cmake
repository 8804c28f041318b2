# SPDX-License-Identifier: Apache-2.0
# Tests of the preloaded libspanwise-malloc.so. `ctest -L preload` runs them.
#
#   differential    compares boundary cases under the C library's malloc and under ours
#   stress.<name>   tests/stress/<name>.c in the short form; ./dev stress runs the long one

find_program(spanwise_python python3)

# A test program. -fno-builtin keeps the compiler from optimising calls of the C library.
function(spanwise_preload_program name source)
  add_executable(${name} "${PROJECT_SOURCE_DIR}/${source}")
  spanwise_compile(${name})
  target_compile_options(${name} PRIVATE -fno-builtin -Wno-deprecated-declarations ${ARGN})
  target_link_libraries(${name} PRIVATE Threads::Threads)
endfunction()

# --- differential ---------------------------------------------------------------------------------

if(spanwise_python)
  # The test reads blocks after a failed realloc, which gcc 12 reports as a use after free.
  include(CheckCCompilerFlag)
  check_c_compiler_flag(-Wno-use-after-free SPANWISE_HAS_NO_USE_AFTER_FREE)
  set(quiet)
  if(SPANWISE_HAS_NO_USE_AFTER_FREE)
    set(quiet -Wno-use-after-free)
  endif()
  spanwise_preload_program(differential_cases tests/differential/cases.c ${quiet})
  set(differential_programs $<TARGET_FILE:differential_cases>)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    spanwise_preload_program(differential_operators tests/differential/operators.cpp)
    set_target_properties(differential_operators PROPERTIES CXX_STANDARD 17
                                                            CXX_STANDARD_REQUIRED ON)
    list(APPEND differential_programs $<TARGET_FILE:differential_operators>)
  endif()
  add_test(NAME differential
           COMMAND "${spanwise_python}" "${PROJECT_SOURCE_DIR}/tests/differential/differential.py"
                   --preload $<TARGET_FILE:spanwise_malloc> ${differential_programs})
  set_tests_properties(differential PROPERTIES LABELS "preload;native" TIMEOUT 1200 COST 20)
endif()

# --- stress ---------------------------------------------------------------------------------------

file(GLOB stress_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/stress/*.c")
foreach(source IN LISTS stress_sources)
  get_filename_component(name "${source}" NAME_WE)
  spanwise_preload_program(stress_${name} tests/stress/${name}.c)
  add_test(NAME stress.${name} COMMAND stress_${name})
  # The tests fork, set memory limits or measure RSS, which an emulator distorts.
  set_tests_properties(stress.${name} PROPERTIES LABELS "preload;native" TIMEOUT 1200 COST 5
                       ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:spanwise_malloc>")
  add_dependencies(stress_${name} spanwise_malloc)
endforeach()
