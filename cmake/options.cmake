# SPDX-License-Identifier: Apache-2.0
# Every switch of the build, in one place. AUTO parts are built when their package is found, and say so.
include(${CMAKE_CURRENT_LIST_DIR}/switch.cmake)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Inside another project (add_subdirectory) the library and its modules alone, unless it asks for more.
set(fp8_bindings_default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(fp8_bindings_default OFF)
endif()
option(FP8_TESTS "build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FP8_EXAMPLES "build the examples" ${PROJECT_IS_TOP_LEVEL})
option(FP8_WERROR "warnings are errors" OFF)
fp8_switch(FP8_ONEDNN AUTO "oneDNN module")
fp8_switch(FP8_CUDA AUTO "CUDA module")
set(FP8_CUDA_ARCHITECTURES "89-real;90a-real;100-real" CACHE STRING "device code of the CUDA module")
fp8_switch(FP8_MPI AUTO "MPI module")
fp8_switch(FP8_BINDINGS ${fp8_bindings_default} "language bindings")
set(FP8_SANITIZE "" CACHE STRING "address;undefined or thread")

set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# fp8_flags: what every target of ours compiles with. No contraction, no fast math: numerics D3.
add_library(fp8_flags INTERFACE)
target_compile_options(fp8_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -ffp-contract=off -fno-fast-math -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>
  $<$<AND:$<BOOL:${FP8_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(FP8_SANITIZE)
  string(REPLACE ";" "," fp8_sanitizers "${FP8_SANITIZE}")
  target_compile_options(fp8_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${fp8_sanitizers} -fno-omit-frame-pointer>)
  target_link_options(fp8_flags INTERFACE -fsanitize=${fp8_sanitizers})
endif()
