// The operations that are contractions, as problems of the room contraction/: one for a matmul, and for a
// convolution one for each group of filters and each phase of its strides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mantissa/device/cpu/contraction/problem.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0::on_cpu {

/// Rows of a contraction that are every so many pixels of images: row (n, i, j) of [N, rows, columns] is
/// pixel (i step + first, j step + first) of image n.
struct PixelRows {
    struct Axis {
        std::int64_t rows = 1, step = 1, first = 0, pixels = 1;
    };
    Axis vertical, horizontal;

    /// The row of the output, all pixels of all images, that a row is.
    std::int64_t of(std::int64_t row) const {
        const std::int64_t j = row % horizontal.rows, i = row / horizontal.rows % vertical.rows;
        const std::int64_t n = row / (vertical.rows * horizontal.rows);
        return (n * vertical.pixels + i * vertical.step + vertical.first) * horizontal.pixels +
               j * horizontal.step + horizontal.first;
    }
};

/// One contraction of operand 0 by operand 1, and perhaps a bias, operand 2; repeated for each group, whose
/// operands and output lie so many elements behind those of the one before.
struct ContractionPart {
    ContractionProblem problem;
    std::int64_t repeats = 1;
    std::int64_t step_of_a = 0, step_of_b = 0, step_of_out = 0, step_of_bias = 0;
    /// Which rows of the output its rows are; none: all, in order. `problem.out` then is that of a row.
    std::optional<PixelRows> rows = {};
};

/// Those of a matmul, a conv2d, a conv2d_input_gradient or a conv2d_filter_gradient, multiplied as the
/// operands are stored. Together they write the output once.
std::vector<ContractionPart> contraction_parts(const Problem& problem);

}  // namespace mantissa::on_cpu
