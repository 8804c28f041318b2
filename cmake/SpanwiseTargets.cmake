# SPDX-License-Identifier: Apache-2.0
# Compile and link flags of all C targets, and functions that list sources.

# spanwise_sources(OUT PATTERN...): the matching .c files of src/, as absolute paths.
function(spanwise_sources out)
  set(found)
  foreach(room IN LISTS ARGN)
    file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}.c")
    list(APPEND found ${files})
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Tests build the same libraries several times. A build with SPANWISE_REUSE links the objects of
# another build of these sources with the same compiler and flags, except for warnings. Only src/os/
# depends on the operating system, so other objects may come from a build for another system.
set(SPANWISE_REUSE "" CACHE PATH "another build of these sources, to reuse its objects (./dev test)")
if(SPANWISE_REUSE)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" upper_type)
  foreach(name IN ITEMS CMAKE_C_COMPILER CMAKE_BUILD_TYPE CMAKE_C_FLAGS "CMAKE_C_FLAGS_${upper_type}"
                        SPANWISE_CHECK SPANWISE_SANITIZE)
    load_cache("${SPANWISE_REUSE}" READ_WITH_PREFIX reused_ ${name})
    set(theirs "${reused_${name}}")
    set(ours "${${name}}")
    if(name STREQUAL "CMAKE_C_COMPILER") # cc and gcc are one compiler
      file(REAL_PATH "${theirs}" theirs)
      file(REAL_PATH "${ours}" ours)
    endif()
    if(NOT theirs STREQUAL ours)
      message(FATAL_ERROR "SPANWISE_REUSE is '${SPANWISE_REUSE}': its ${name} is '${theirs}', and "
                          "here it is '${ours}'")
    endif()
  endforeach()
  load_cache("${SPANWISE_REUSE}" READ_WITH_PREFIX reused_ SPANWISE_OS)
endif()

# spanwise_reused(OUT TARGET SOURCE...): OUT: objects of the sources in the other build; OUT_own:
# sources to compile here, which are those of src/os/ if the other build is for another system.
function(spanwise_reused out target)
  set(objects)
  set(own)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH inside "${PROJECT_SOURCE_DIR}" "${source}")
    if(inside MATCHES "^src/os/" AND NOT reused_SPANWISE_OS STREQUAL SPANWISE_OS)
      list(APPEND own "${source}")
    else()
      list(APPEND objects "${SPANWISE_REUSE}/CMakeFiles/${target}.dir/${inside}.o")
    endif()
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} "${objects}" PARENT_SCOPE)
  set(${out}_own "${own}" PARENT_SCOPE)
endfunction()

# Make paths in __FILE__ and in debug information relative to the project's root.
function(spanwise_hide_folders target)
  foreach(folder IN ITEMS "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
    target_compile_options(${target} PRIVATE "-ffile-prefix-map=${folder}=.")
  endforeach()
endfunction()

# Set the flags of a target: C11, hidden symbols, warnings, assertion grade, sanitizers.
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
  # gcc does not fold constants in instrumented code, and so warns of conversions that do not
  # happen.
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

# Link a shared library: hide the symbols of archives, and make undefined names an error, except
# with sanitizers, which define theirs later. Never unload it: exiting threads call its exit
# function, and objects that it allocated may outlive the last dlclose.
function(spanwise_link_shared target)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,now -Wl,-z,relro
                      -Wl,-z,nodelete)
  if(NOT SPANWISE_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
