# SPDX-License-Identifier: Apache-2.0
if(NOT FP8_JULIA)
  fp8_binding_skip("julia" "julia was not found")
  return()
endif()
if(FP8_TESTS AND NOT FP8_SANITIZE)
  # a depot and a load path of the build: nothing of the user's is read or written
  set(julia ${CMAKE_COMMAND} -E env JULIA_DEPOT_PATH=${CMAKE_CURRENT_BINARY_DIR}/julia_depot "JULIA_LOAD_PATH=${CMAKE_CURRENT_SOURCE_DIR}/julia:@stdlib"
    JULIA_NUM_THREADS=2 FP8_LIBRARY=$<TARGET_FILE:fp8> ${FP8_JULIA} --startup-file=no)
  fp8_binding_test(julia test 300 ${julia} julia/FP8/test/runtests.jl)
  if(FP8_EXAMPLES AND EXISTS /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz)
    fp8_binding_test(julia example_mlp 300 ${julia} ${PROJECT_SOURCE_DIR}/examples/julia/mlp.jl 120 block)
    set_tests_properties(julia.example_mlp PROPERTIES RESOURCE_LOCK julia_depot)
  endif()
  set_tests_properties(julia.test PROPERTIES RESOURCE_LOCK julia_depot)
endif()
message(STATUS "fp8: bindings: julia tested with ${FP8_JULIA}")
