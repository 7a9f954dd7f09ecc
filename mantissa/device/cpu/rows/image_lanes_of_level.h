// The lanes of images of the level that a source is compiled for, beside lanes_of_level.h.
#pragma once

#include "mantissa/device/cpu/rows/lanes_of_level.h"

#if defined(MANTISSA_LEVEL_avx512bf16) || defined(MANTISSA_LEVEL_avx512)
#include "mantissa/device/cpu/rows/image_lanes_avx512.h"
#elif defined(MANTISSA_LEVEL_avx2)
#include "mantissa/device/cpu/rows/image_lanes_avx2.h"
#else
#include "mantissa/device/cpu/rows/image_lanes_generic.h"
#endif
