# SPDX-License-Identifier: Apache-2.0
# What every C target of this project is compiled and linked with, and where sources are found.

# The .c files of the given folders (or patterns) of src/, as absolute paths.
function(spanwise_sources out)
  set(found)
  foreach(room IN LISTS ARGN)
    file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}.c")
    list(APPEND found ${files})
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# What is built names its sources from the project's root, wherever that was: __FILE__ of a failed
# assertion, and debug information.
function(spanwise_hide_folders target)
  foreach(folder IN ITEMS "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
    target_compile_options(${target} PRIVATE "-ffile-prefix-map=${folder}=.")
  endforeach()
endfunction()

# Flags of one target of ours: C11, hidden symbols, warnings, assertion grade, sanitizers.
function(spanwise_compile target)
  set_target_properties(
    ${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
                         C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                               "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(${target} PRIVATE SW_CHECK=${SPANWISE_CHECK})
  if(SPANWISE_CHECK EQUAL 0)
    target_compile_definitions(${target} PRIVATE SW_FAST_CHECKED=0)
  endif()
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  spanwise_hide_folders(${target})
  # Instrumented code does not fold constants, so gcc warns there of conversions that do not happen.
  if(SPANWISE_DEVELOPER AND NOT SPANWISE_SANITIZE)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Werror)
  endif()
  if(SPANWISE_SANITIZE)
    target_compile_options(
      ${target} PRIVATE -fsanitize=${SPANWISE_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${SPANWISE_SANITIZE})
  endif()
endfunction()

# A shared library takes from archives what it needs and shows none of it; undefined names are an
# error here, not in the user's program (the sanitizers' own names come late: not with them).
function(spanwise_link_shared target)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,now -Wl,-z,relro)
  if(NOT SPANWISE_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
