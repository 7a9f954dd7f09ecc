# Tests that are not C++: the checks of the sources, the tests of those checks, and the installed package.
# They say nothing about a sanitizer's build, so only a plain build has them.
if(MANTISSA_SANITIZE)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(mantissa_python_test name)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # A check that cannot run here exits with 77, which ctest reports as skipped.
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

mantissa_python_test(install tests/scripts/install_test.py ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_CXX_COMPILER})
set_tests_properties(install PROPERTIES LABELS install)
