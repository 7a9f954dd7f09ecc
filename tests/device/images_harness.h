// Kernels over images by the settings of rows_harness.h.
#pragma once

#include <array>
#include <map>
#include <stdexcept>
#include <string_view>

#include "mantissa/device/cpu/rows/image_kernels.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {

/// Those of a setting's level. A level's table is made by code of that level, so the others are not made.
inline const ImageKernels& images(const Setting& setting) {
    struct Level {
        std::string_view name;
        ImageKernels (*make)();
    };
    constexpr std::array levels = {Level{"generic", image_kernels_generic}, Level{"avx2", image_kernels_avx2},
                                   Level{"avx512", image_kernels_avx512},
                                   Level{"avx512_bf16", image_kernels_avx512bf16}};
    static std::map<std::string_view, ImageKernels> made;
    for (const Level& level : levels)
        if (level.name == setting.kernels.name)
            return made.contains(level.name) ? made[level.name] : made[level.name] = level.make();
    throw std::logic_error("each level of row kernels has kernels over images");
}

}  // namespace mantissa::on_cpu
