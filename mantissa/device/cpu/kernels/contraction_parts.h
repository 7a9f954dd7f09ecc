// The operations that are contractions, as problems of the room contraction/: one for a matmul, and for a
// convolution one for each group of filters and each phase of its strides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "mantissa/device/cpu/contraction/problem.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0::on_cpu {

/// Rows of a contraction that are every so many pixels of images: row (n, i, j) of [N, outputs, outputs] is
/// the pixel of image n that element 0 of a filter meets at (i, j).
struct PixelRows {
    ConvolutionAxis vertical, horizontal;

    /// The output's row, among all pixels of all images, for a row of the contraction.
    std::int64_t of(std::int64_t row) const {
        const std::int64_t j = row % horizontal.output, i = row / horizontal.output % vertical.output;
        const std::int64_t n = row / (vertical.output * horizontal.output);
        return (n * vertical.image + vertical.image_place(i, 0)) * horizontal.image +
               horizontal.image_place(j, 0);
    }

    /// The number of rows from `row` on, at most `most`, that are pixels of one row of an image. The first is
    /// `of(row)`, and each lies `horizontal.stride` behind the one before.
    std::int64_t run_from(std::int64_t row, std::int64_t most) const {
        return std::min(most, horizontal.output - row % horizontal.output);
    }
};

/// One contraction of operand 0 by operand 1, and perhaps a bias, operand 2; repeated for each group, whose
/// operands and output lie so many elements behind the previous group's.
struct ContractionPart {
    ContractionProblem problem;
    std::int64_t repeats = 1;
    std::int64_t step_of_a = 0, step_of_b = 0, step_of_out = 0, step_of_bias = 0;
    /// Rows of the output that receive its rows; none: all, in order. `problem.out` then is a row's.
    std::optional<PixelRows> rows = {};
};

/// The parts of a matmul, a conv2d, a conv2d_input_gradient or a conv2d_filter_gradient, multiplied as the
/// operands are stored. Together they write the output once.
std::vector<ContractionPart> contraction_parts(const Problem& problem);

}  // namespace mantissa::on_cpu
