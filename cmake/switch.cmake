# SPDX-License-Identifier: Apache-2.0
# fp8_switch(NAME DEFAULT HELP): a cache entry AUTO, ON or OFF, and a variable of that name that holds one of these three
# words in capitals, whatever way CMake writes a truth value (0, no, False). Any other value is an error.
function(fp8_switch name default help)
  set(${name} ${default} CACHE STRING "${help}: AUTO, ON or OFF")
  if(NOT CMAKE_SCRIPT_MODE_FILE)
    set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  endif()
  string(TOUPPER "${${name}}" value)
  if(value MATCHES "^(ON|YES|TRUE|Y|1)$")
    set(value ON)
  elseif(value MATCHES "^(OFF|NO|FALSE|N|0)$")
    set(value OFF)
  elseif(NOT value STREQUAL "AUTO")
    message(FATAL_ERROR "fp8: ${name} is \"${${name}}\", it must be AUTO, ON or OFF")
  endif()
  set(${name} ${value} PARENT_SCOPE)
endfunction()
