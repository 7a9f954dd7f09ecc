// Kernels over images by the settings of rows_harness.h.
#pragma once

#include <array>
#include <string_view>

#include "mantissa/device/cpu/rows/image_kernels.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {

/// Those of a setting's level.
inline const ImageKernels& images(const Setting& setting) {
    static const std::array all = {image_kernels_generic(), image_kernels_avx2(), image_kernels_avx512(),
                                   image_kernels_avx512bf16()};
    for (const ImageKernels& kernels : all)
        if (std::string_view(kernels.name) == setting.kernels.name) return kernels;
    throw std::logic_error("each level of row kernels has kernels over images");
}

}  // namespace mantissa::on_cpu
