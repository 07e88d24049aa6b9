# SPDX-License-Identifier: Apache-2.0
# The quantizer's and its neighbours' kernels. Label `slow`: not under sanitizers.
foreach(name large move_kernels properties quantize_kernels quantize_random)
  fp8_test(${name} unit test_${name}.cpp $<TARGET_OBJECTS:fp8_kernels_cpu>)
  target_link_libraries(test_unit_${name} PRIVATE fp8_unit)
endforeach()
set_tests_properties(unit.large PROPERTIES LABELS "unit;slow")
