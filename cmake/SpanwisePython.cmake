# SPDX-License-Identifier: Apache-2.0 Contents of the wheel (component `python`): the extension,
# which contains the whole library; the preloads and the replayer in spanwise/_native; and headers,
# sources and the generator's script in spanwise/_source, from which `spanwise build` compiles an
# allocator for another table. The generator itself is the package spanwise_sizeclasses, listed in
# wheel.packages of pyproject.toml.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

set(ffi_prelude "${PROJECT_SOURCE_DIR}/cmake/ffi_prelude.c")
set(ffi_script "${PROJECT_SOURCE_DIR}/scripts/ffi_cdef.py")
set(ffi_cdef "${PROJECT_BINARY_DIR}/ffi.cdef.txt")
set(ffi_source "${PROJECT_BINARY_DIR}/_spanwise.c")
file(GLOB_RECURSE ffi_headers CONFIGURE_DEPENDS include/*.h examples/*.h)
add_custom_command(
  OUTPUT "${ffi_source}"
  COMMAND Python::Interpreter "${ffi_script}" "${CMAKE_C_COMPILER}" "${ffi_prelude}" "${ffi_cdef}"
          "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/examples"
  COMMAND Python::Interpreter -m cffi.gen_src read-sources spanwise._spanwise "${ffi_cdef}"
          "${ffi_prelude}" "${ffi_source}"
  DEPENDS "${ffi_script}" "${ffi_prelude}" ${ffi_headers}
  VERBATIM)

# The stable ABI is selected manually, because FindPython supports USE_SABI only since CMake 3.26,
# and Debian 12 has 3.25. scikit-build-core does not request it for a free-threaded interpreter,
# which has no stable ABI.
#
# spanwise.lessons runs the code of spanwise_examples on heaps of this extension. It is linked in
# because a second extension would contain a second library with its own page map.
add_library(spanwise_extension MODULE "${ffi_source}")
set_target_properties(spanwise_extension PROPERTIES PREFIX "" OUTPUT_NAME _spanwise C_STANDARD 11
                                                    C_VISIBILITY_PRESET hidden)
if(SKBUILD_SABI_VERSION)
  set_target_properties(spanwise_extension PROPERTIES SUFFIX ".abi3.so")
  target_compile_definitions(spanwise_extension PRIVATE Py_LIMITED_API=0x030A0000)
else()
  set_target_properties(spanwise_extension PROPERTIES SUFFIX ".${SKBUILD_SOABI}.so")
endif()
spanwise_hide_folders(spanwise_extension)
target_include_directories(spanwise_extension PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(spanwise_extension PRIVATE spanwise_examples spanwise_static m)
target_link_options(spanwise_extension PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete)

install(TARGETS spanwise_extension LIBRARY DESTINATION spanwise COMPONENT python)
if(spanwise_faces)
  install(TARGETS ${spanwise_faces} LIBRARY DESTINATION spanwise/_native COMPONENT python)
endif()
if(spanwise_programs)
  install(TARGETS ${spanwise_programs} RUNTIME DESTINATION spanwise/_native COMPONENT python)
endif()
install(DIRECTORY include src DESTINATION spanwise/_source COMPONENT python
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.c")
install(FILES scripts/sizeclasses.py scripts/build_check.c
        DESTINATION spanwise/_source/scripts COMPONENT python)
install(FILES LICENSE DESTINATION spanwise/_source COMPONENT python)
install(FILES examples/lessons/claims.json
        DESTINATION spanwise/lessons COMPONENT python)
# Manual pages, from the help texts. pip installs them in share/man of the environment. A cross
# build cannot load the extension, so it has none.
set(man_pages "${PROJECT_BINARY_DIR}/man")
add_custom_command(TARGET spanwise_extension POST_BUILD
  COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/man_pages.py" "${man_pages}"
          --extension "$<TARGET_FILE:spanwise_extension>" || "${CMAKE_COMMAND}" -E echo "no manual pages"
  VERBATIM)
install(DIRECTORY "${man_pages}/" DESTINATION "${SKBUILD_DATA_DIR}/share/man/man1" COMPONENT python
        OPTIONAL FILES_MATCHING PATTERN "*.1")
