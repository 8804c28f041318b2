# SPDX-License-Identifier: Apache-2.0
# unit.serializers: FlatBuffers and protobuf-c with memory from an arena. No other target uses them.
find_program(SPANWISE_FLATC flatc)
find_path(SPANWISE_FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h)
find_program(SPANWISE_PROTOC_C protoc-c)
find_path(SPANWISE_PROTOBUF_C_INCLUDE protobuf-c/protobuf-c.h)
find_library(SPANWISE_PROTOBUF_C protobuf-c)

set(missing "")
foreach(each IN ITEMS FLATC FLATBUFFERS_INCLUDE PROTOC_C PROTOBUF_C_INCLUDE PROTOBUF_C)
  if(NOT SPANWISE_${each})
    string(APPEND missing " ${each}")
  endif()
endforeach()
if(missing)
  add_test(NAME unit.serializers COMMAND "${CMAKE_COMMAND}" -E echo "skipped, not found:${missing}")
  set_tests_properties(unit.serializers PROPERTIES LABELS unit SKIP_REGULAR_EXPRESSION "skipped")
  return()
endif()

set(serializers_from "${PROJECT_SOURCE_DIR}/tests/serializers")
set(serializers_to "${CMAKE_CURRENT_BINARY_DIR}/serializers")
file(MAKE_DIRECTORY "${serializers_to}")
add_custom_command(
  OUTPUT "${serializers_to}/message_generated.h"
  COMMAND "${SPANWISE_FLATC}" --cpp -o "${serializers_to}" "${serializers_from}/message.fbs"
  DEPENDS "${serializers_from}/message.fbs" VERBATIM)
add_custom_command(
  OUTPUT "${serializers_to}/message.pb-c.c" "${serializers_to}/message.pb-c.h"
  COMMAND "${SPANWISE_PROTOC_C}" "--c_out=${serializers_to}" "--proto_path=${serializers_from}"
          message.proto
  DEPENDS "${serializers_from}/message.proto" VERBATIM)
# Compile generated code without our warnings.
set_source_files_properties("${serializers_to}/message.pb-c.c" PROPERTIES COMPILE_OPTIONS -w)
add_executable(test_serializers "${serializers_from}/test_serializers.cpp"
               "${serializers_to}/message.pb-c.c" "${serializers_to}/message_generated.h")
spanwise_compile(test_serializers)
set_target_properties(test_serializers PROPERTIES CXX_STANDARD 11 CXX_STANDARD_REQUIRED ON)
target_include_directories(
  test_serializers SYSTEM PRIVATE "${serializers_to}" "${SPANWISE_FLATBUFFERS_INCLUDE}"
                                  "${SPANWISE_PROTOBUF_C_INCLUDE}")
target_include_directories(test_serializers PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_link_libraries(test_serializers PRIVATE spanwise_static m "${SPANWISE_PROTOBUF_C}")
add_test(NAME unit.serializers COMMAND test_serializers)
set_tests_properties(unit.serializers PROPERTIES LABELS unit TIMEOUT 1200)
