// The lanes of the level that a source is compiled for. The build compiles a source NAME_of_level.cpp once
// for each level and defines, for AVX2: MANTISSA_LEVEL_avx2, MANTISSA_LEVEL as "avx2", MANTISSA_OF_LEVEL(f)
// as f_avx2.
#pragma once

#if defined(MANTISSA_LEVEL_avx512bf16)
#include "mantissa/device/cpu/rows/results_avx512bf16.h"
#elif defined(MANTISSA_LEVEL_avx512)
#include "mantissa/device/cpu/rows/lanes_avx512.h"
#elif defined(MANTISSA_LEVEL_avx2)
#include "mantissa/device/cpu/rows/lanes_avx2.h"
#else
#include "mantissa/device/cpu/rows/lanes_generic.h"
#endif
