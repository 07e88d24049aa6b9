# SPDX-License-Identifier: Apache-2.0
# The Python package is put together in ${FP8_PYTHON_DIR}/fp8, from where the tests and the wheel take it.
set(FP8_PYTHON_DIR ${PROJECT_BINARY_DIR}/python)
if(NOT Python_Development.Module_FOUND OR Python_VERSION VERSION_LESS 3.11)
  fp8_binding_skip("python" "Python >= 3.11 with its headers was not found (found: ${Python_VERSION})")
  return()
endif()
if(FP8_SWIG_VERSION VERSION_LESS 4.2)
  fp8_binding_skip("python" "SWIG >= 4.2 was not found (found: ${FP8_SWIG_VERSION}); pip has it")
  return()
endif()

set(package ${FP8_PYTHON_DIR}/fp8)
set(sources
  __init__.py
  _arrays.py
  _dtypes.py
  _errors.py
  capi.pyi
  comm.py
  context.py
  gemm.py
  linear.py
  param.py
  py.typed
  quantize.py
  recipe.py
  jax/__init__.py
  jax/_ffi.py
  jax/flat.py
  jax/linear.py
  jax/ops.py
  jax/param.py
)
foreach(source IN LISTS sources)
  get_filename_component(folder ${package}/${source} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/python/fp8/${source} ${package}/${source} SYMBOLIC)
endforeach()

file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/fp8/*.h)
# What the headers declare and the library does not export is left out.
file(STRINGS ${PROJECT_SOURCE_DIR}/src/libfp8.map exported REGEX "fp8_")
string(REGEX MATCHALL "fp8_[a-z0-9_]+" exported "${exported}")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/fp8_missing.i.new "")
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX MATCHALL "FP8_API [a-z0-9_ ]+[ *]+fp8_[a-z0-9_]+\\(" declared "${text}")
  foreach(line IN LISTS declared)
    string(REGEX MATCH "fp8_[a-z0-9_]+\\($" name "${line}")
    string(REPLACE "(" "" name "${name}")
    if(NOT name IN_LIST exported)
      message(STATUS "fp8: bindings: python leaves out ${name}: not exported by the library")
      file(APPEND ${CMAKE_CURRENT_BINARY_DIR}/fp8_missing.i.new "%ignore ${name};\n")
    endif()
  endforeach()
endforeach()
configure_file(${CMAKE_CURRENT_BINARY_DIR}/fp8_missing.i.new ${CMAKE_CURRENT_BINARY_DIR}/fp8_missing.i COPYONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/libfp8.map ${headers})
set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/capi_wrap.c)
add_custom_command(OUTPUT ${wrapper} ${package}/capi.py
  COMMAND ${FP8_SWIG} -python -doxygen -threads -DFP8_PARTIAL -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/include
    -I${CMAKE_CURRENT_SOURCE_DIR} -I${CMAKE_CURRENT_BINARY_DIR} -outdir ${package} -o ${wrapper} ${CMAKE_CURRENT_SOURCE_DIR}/fp8.i
  DEPENDS fp8.i ${CMAKE_CURRENT_BINARY_DIR}/fp8_missing.i python/capi.swg python/capi_calls.swg ${headers}
  VERBATIM COMMENT "SWIG: the Python low level")
add_library(fp8_capi MODULE ${wrapper})
target_compile_definitions(fp8_capi PRIVATE Py_LIMITED_API=0x030b0000)
target_compile_options(fp8_capi PRIVATE -Wno-cast-function-type)
target_include_directories(fp8_capi PRIVATE python)
target_link_libraries(fp8_capi PRIVATE fp8 Python::Module)
set_target_properties(fp8_capi PROPERTIES PREFIX "" OUTPUT_NAME _capi SUFFIX .abi3.so C_STANDARD 11
  LIBRARY_OUTPUT_DIRECTORY ${package} INSTALL_RPATH "$ORIGIN/lib"
  BUILD_RPATH "$ORIGIN/lib")

# fp8_python_has(MODULES OUT): whether Python can import them
function(fp8_python_has modules out)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import ${modules}" RESULT_VARIABLE rc OUTPUT_QUIET ERROR_QUIET)
  if(rc EQUAL 0)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

set(FP8_PYTEST ${CMAKE_COMMAND} -E env PYTHONPATH=${FP8_PYTHON_DIR} PYTHONDONTWRITEBYTECODE=1 FP8_GOLDEN=${PROJECT_SOURCE_DIR}/tests/golden
  FP8_SOURCE=${PROJECT_SOURCE_DIR} ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider)
if(FP8_TESTS AND NOT FP8_SANITIZE)
  fp8_python_has("numpy, ml_dtypes, pytest" has)
  if(has)
    fp8_binding_test(python test 120 ${FP8_PYTEST} python/tests)
    fp8_binding_test(python wheel 120 ${Python_EXECUTABLE} python/tests/wheel.py ${PROJECT_BINARY_DIR})
  else()
    fp8_binding_skip("the tests of python" "they need numpy, ml_dtypes and pytest")
  endif()
endif()
message(STATUS "fp8: bindings: python built with SWIG ${FP8_SWIG_VERSION} for Python >= 3.11 (tested with ${Python_VERSION})")

# ---- fp8.jax
execute_process(COMMAND ${Python_EXECUTABLE} -c "import jax.ffi; print(jax.ffi.include_dir())" OUTPUT_VARIABLE xla_include
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_jax)
if(no_jax)
  fp8_binding_skip("python fp8.jax" "jax (with jax.ffi) was not found in ${Python_EXECUTABLE}")
  return()
endif()
add_library(fp8_jax MODULE python/jax/ops.cpp python/jax/param.cpp)
target_include_directories(fp8_jax SYSTEM PRIVATE ${xla_include})
target_link_libraries(fp8_jax PRIVATE fp8 $<BUILD_INTERFACE:fp8_flags>)
target_link_options(fp8_jax PRIVATE -static-libstdc++ -static-libgcc)
set_target_properties(fp8_jax PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package}/jax CXX_VISIBILITY_PRESET default
  VISIBILITY_INLINES_HIDDEN ON INSTALL_RPATH "$ORIGIN/../lib"
  BUILD_RPATH "$ORIGIN/../lib")
if(FP8_TESTS AND NOT FP8_SANITIZE)
  fp8_python_has("numpy, ml_dtypes, pytest, jax" has)
  if(has)
    fp8_binding_test(python jax_ops 300 ${FP8_PYTEST} python/jax_tests/test_ops.py python/jax_tests/test_cuda.py)
    fp8_binding_test(python jax_transforms 300 ${FP8_PYTEST} python/jax_tests/test_transforms.py)
    fp8_binding_test(python jax_flat 300 ${FP8_PYTEST} python/jax_tests/test_flat.py)
    fp8_python_has("optax" has_optax)
    if(has_optax AND FP8_EXAMPLES)
      set(example ${CMAKE_COMMAND} -E env PYTHONPATH=${FP8_PYTHON_DIR} PYTHONDONTWRITEBYTECODE=1 JAX_PLATFORMS=cpu ${Python_EXECUTABLE}
        ${PROJECT_SOURCE_DIR}/examples/jax)
      fp8_binding_test(python example_gpt 300 ${example}/gpt.py --layers 1 --steps 30 --recipes block --quiet)
      fp8_binding_test(python example_zero1 300 ${example}/zero1.py --recipe block)
      fp8_binding_test(python example_zero1_few 300 ${example}/zero1.py --recipe block --steps 2)
    else()
      fp8_binding_skip("the JAX examples" "they need optax")
    endif()
  endif()
endif()
message(STATUS "fp8: bindings: python fp8.jax built against ${xla_include}")
