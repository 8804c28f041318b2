# SPDX-License-Identifier: Apache-2.0
# Installation: headers, both libraries, the preloads, the replayer, a CMake package
# (find_package(spanwise), target spanwise::spanwise) and a pkg-config file.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/spanwise")
set_target_properties(spanwise_static PROPERTIES EXPORT_NAME static)
set_target_properties(spanwise_shared PROPERTIES EXPORT_NAME shared)

install(DIRECTORY include/spanwise DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS spanwise_static spanwise_shared EXPORT spanwiseTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
                NAMELINK_COMPONENT development)
if(spanwise_faces)
  install(TARGETS ${spanwise_faces} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
                                            COMPONENT runtime)
endif()
if(spanwise_programs)
  install(TARGETS ${spanwise_programs} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
                                               COMPONENT runtime)
endif()

install(EXPORT spanwiseTargets NAMESPACE spanwise:: DESTINATION "${package_dir}"
        COMPONENT development)
configure_package_config_file(cmake/spanwiseConfig.cmake.in spanwiseConfig.cmake
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(spanwiseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/spanwiseConfig.cmake"
              "${PROJECT_BINARY_DIR}/spanwiseConfigVersion.cmake"
        DESTINATION "${package_dir}" COMPONENT development)

# The .pc file locates the prefix relative to itself: libdir may be lib, lib64 or lib/<triplet>. An
# absolute libdir cannot be relocated, so the file then has the absolute prefix.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pc_libdir "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH back "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" back "${back}")
  set(pc_prefix "\${pcfiledir}/${back}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/spanwise.pc.in spanwise.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/spanwise.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT development)
