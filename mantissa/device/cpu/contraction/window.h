// Gathering an operand from images, some rows and columns at a time, on its way into panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Elements of the images of `rows` rows, from the first of the first to behind the last of the last.
std::int64_t elements_of(const ImageWindow& window, std::int64_t rows);

/// Where rows and columns go: columns in blocks, one behind another, each with its rows `leading` apart.
/// Counts are in elements.
struct GatheredTo {
    std::byte* data = nullptr;
    std::int64_t leading = 0;
    std::int64_t block_columns = 0;
    std::int64_t block_elements = 0;  ///< from one block to the next
};

/// Writes these rows and columns of the matrix that the window is. `images` is where the first image begins;
/// an element has `element_bytes`.
void gather(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes, PanelRange rows,
            PanelRange columns, const GatheredTo& to);

}  // namespace mantissa::on_cpu
