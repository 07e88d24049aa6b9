# SPDX-License-Identifier: Apache-2.0
if(NOT FP8_CARGO)
  fp8_binding_skip("rust" "cargo was not found")
  return()
endif()
if(FP8_TESTS AND NOT FP8_SANITIZE)
  set(cargo ${CMAKE_COMMAND} -E env "CARGO_TARGET_DIR=${CMAKE_CURRENT_BINARY_DIR}/rust" CARGO_NET_OFFLINE=true
    ${FP8_CARGO})
  set(manifest --manifest-path ${CMAKE_CURRENT_SOURCE_DIR}/rust/Cargo.toml --workspace)
  fp8_binding_test(rust test 600 ${cargo} test -q ${manifest})
  fp8_binding_test(rust clippy 600 ${cargo} clippy -q --all-targets ${manifest} -- -D warnings)
  # one target folder: one cargo at a time
  set_tests_properties(rust.test rust.clippy PROPERTIES RESOURCE_LOCK cargo)
endif()
message(STATUS "fp8: bindings: rust tested with ${FP8_CARGO}")
