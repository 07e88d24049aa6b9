# SPDX-License-Identifier: Apache-2.0
# What is generated and committed: compared with a fresh run, and its layouts asserted against the headers.
if(FP8_TESTS)
  add_executable(fp8_bindings_layout gen/layout.c)
  target_link_libraries(fp8_bindings_layout PRIVATE fp8)
  add_test(NAME abi.bindings_layout COMMAND fp8_bindings_layout)
  set_tests_properties(abi.bindings_layout PROPERTIES LABELS abi)
endif()
if(NOT FP8_SWIG OR NOT Python_Interpreter_FOUND OR NOT FP8_RUSTFMT)
  fp8_binding_skip("the comparison of the generated files" "it needs swig, python and rustfmt")
  return()
endif()
set(FP8_GENERATE ${CMAKE_COMMAND} -E env "PATH=$ENV{PATH}:$ENV{HOME}/.cargo/bin" ${Python_EXECUTABLE}
  ${CMAKE_CURRENT_SOURCE_DIR}/gen/generate.py --swig ${FP8_SWIG} --include ${PROJECT_BINARY_DIR}/include)
add_custom_target(fp8_generate COMMAND ${FP8_GENERATE} VERBATIM COMMENT "Writing the generated parts of the bindings")
if(FP8_TESTS)
  add_test(NAME abi.bindings_generated COMMAND ${FP8_GENERATE} --check)
  set_tests_properties(abi.bindings_generated PROPERTIES LABELS abi)
endif()
