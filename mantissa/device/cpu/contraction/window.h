// Gathering an operand from images, some rows and columns at a time, on its way into panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Elements of the images of `rows` rows, from the first of the first to behind the last of the last.
std::int64_t elements_of(const ImageWindow& window, std::int64_t rows);

/// Writes these rows and columns of the matrix that the window is, rows `leading` elements apart. `images`
/// is where the first image begins; an element has `element_bytes`.
void gather(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes, PanelRange rows,
            PanelRange columns, std::byte* to, std::int64_t leading);

}  // namespace mantissa::on_cpu
