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

set(install_test tests/scripts/install_test.py ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_CXX_COMPILER})
mantissa_python_test(install ${install_test})
mantissa_python_test(install_slow ${install_test} --slow)
set_tests_properties(install PROPERTIES COST 60)
set_tests_properties(install_slow PROPERTIES TIMEOUT 900 LABELS slow)

# The commands of README.md and of the guide; slow, each training with all of its steps.
mantissa_python_test(guide tests/scripts/guide_test.py ${CMAKE_BINARY_DIR} ${CMAKE_CXX_COMPILER})
mantissa_python_test(guide_slow tests/scripts/guide_test.py ${CMAKE_BINARY_DIR} ${CMAKE_CXX_COMPILER} --slow)
set_tests_properties(guide PROPERTIES TIMEOUT 900 COST 100)
set_tests_properties(guide_slow PROPERTIES TIMEOUT 3600 LABELS slow)

# Slow: it builds the library once more, with what pip brings.
mantissa_python_test(python_package tests/scripts/python_package_test.py)
set_tests_properties(python_package PROPERTIES TIMEOUT 3600 LABELS slow)

# Slow, since a browser is a large package: the pages as a browser shows them.
if(TARGET mantissa_cli)
  mantissa_python_test(pages tests/scripts/pages_test.py $<TARGET_FILE:mantissa_cli>)
  set_tests_properties(pages PROPERTIES TIMEOUT 900 LABELS slow)
endif()

# The checks of the sources, and for each a test that plants what it must find.
foreach(check IN ITEMS includes style documents prose environment format)
  mantissa_python_test(check_${check} scripts/check_${check}.py)
  mantissa_python_test(check_${check}_test tests/scripts/check_${check}_test.py)
endforeach()
mantissa_python_test(check_help scripts/check_prose.py --program $<TARGET_FILE:mantissa_cli>)
mantissa_python_test(check_tidy_test tests/scripts/check_tidy_test.py)
mantissa_python_test(check_symbols_test tests/scripts/check_symbols_test.py ${CMAKE_CXX_COMPILER})
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Without optimisation every inline function is written down, so only what is shipped is looked at.
  mantissa_python_test(check_symbols scripts/check_symbols.py ${CMAKE_BINARY_DIR})
  mantissa_python_test(check_tidy scripts/check_tidy.py ${CMAKE_BINARY_DIR})
  set_tests_properties(check_tidy PROPERTIES TIMEOUT 7200 LABELS slow)
endif()
mantissa_python_test(shell_scripts tests/scripts/shell_scripts_test.py)

# The programs that will run on a machine with a GPU, carried to a folder and run on the emulated one.
if(TARGET gpu_checks AND CMAKE_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build")
  add_test(NAME gpu_rehearsal COMMAND bash -c "bench/gpu.sh --carry build/gpu && build/gpu/gpu.sh --rehearse"
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(gpu_rehearsal PROPERTIES TIMEOUT 900 LABELS slow)
endif()

# The kernels of AVX2 on an emulated CPU that has nothing above, which faults on a stray AVX-512 instruction. Only
# where qemu-x86_64 is installed (Debian: qemu-user), and a selection, since emulation is slow.
find_program(MANTISSA_QEMU qemu-x86_64)
if(MANTISSA_QEMU)
  add_test(NAME device_emulated_haswell
           COMMAND ${MANTISSA_QEMU} -cpu Haswell $<TARGET_FILE:test_device> --gtest_brief=1
                   --gtest_filter=Isa.*:ContractionEpilogue.*:ContractionExact.Batches:ContractionExact.SingleRows:ContractionExact.SizesOfZero:ContractionExact.HeadsAreReadAndWrittenWhereTheyLie:ByteProducts.*)
  set_tests_properties(device_emulated_haswell PROPERTIES TIMEOUT 600)
else()
  add_test(NAME device_emulated_haswell COMMAND sh -c "echo 'qemu-user is not installed'; exit 77")
  set_tests_properties(device_emulated_haswell PROPERTIES SKIP_RETURN_CODE 77)
endif()

# The tile kernels to their last instruction where the CPU has no tiles: each instruction faults and is emulated. Tests
# of GPUs, of what copies, of other units and of twins are no tests of tiles.
file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
if(flags MATCHES " avx512_bf16" AND NOT flags MATCHES " amx_tile")
  function(mantissa_test_on_emulated_tiles name room filter)
    mantissa_test_of_room(${name} ${room} ${filter})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 COST 30 ENVIRONMENT MANTISSA_TEST_TILES=1)
  endfunction()
  # The longest are left to the slow set.
  set(no_tiles *Slow*:*Peaks*:Rows*:Images*:Narrowing*:*Cuda*:Emulated*:Cu*:Nccl*:AlgorithmFile*:KernelFolder*)
  string(APPEND no_tiles :*Twin*:*DotProducts*:*Bf16Widened*:*EveryWayOfCutting*:*TilePacking*)
  string(APPEND no_tiles :Attention.ErrsAtMost*:Attention.PairsOfBf16*)
  set(long_on_tiles Attention.HasTheSameBitsOnAnyNumberOfThreads:ContractionKept.SameBitsOfConvertedOperands:ContractionKept.SameBitsOnTheTwins)
  mantissa_test_on_emulated_tiles(device_on_emulated_tiles device -${no_tiles}:${long_on_tiles})
  mantissa_test_on_emulated_tiles(device_on_emulated_tiles_slow device ${long_on_tiles})
  set_tests_properties(device_on_emulated_tiles_slow PROPERTIES LABELS slow)
  mantissa_test_on_emulated_tiles(runtime_on_emulated_tiles runtime -*Slow*:*Cuda*:FunctionEdges*:Loops*)
  mantissa_test_on_emulated_tiles(report_on_emulated_tiles report Ladder.*-*Copies*)
endif()
