#include "mantissa/device/cpu/contraction/image_pairs.h"

#include <algorithm>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One half of each word; the other is 0.
void pack_alone(const std::uint16_t* pixels, const ImageWindow& window, std::int64_t height,
                PanelRange channels, int shift, std::uint32_t* to) {
    for (std::int64_t channel = 0; channel < channels.size; channel += height)
        for (std::int64_t pixel = 0; pixel < window.horizontal.image; ++pixel)
            for (std::int64_t i = 0; i < height; ++i)
                *to++ = std::uint32_t{pixels[pixel * window.pixel_pitch + channels.begin + channel + i]}
                        << shift;
}

}  // namespace

std::optional<ImagePairs> ImagePairs::of(const ContractionProblem& problem,
                                         const ContractionKernels& kernels) {
    const MatrixLayout &a = problem.a, &b = problem.b;
    const bool pairs = kernels.multiply_across && kernels.element_bytes == 2 && !kernels.conversion.convert;
    if (!pairs || !a.window || a.transpose == Transpose::no || b.transpose == Transpose::yes || b.window)
        return std::nullopt;
    const ConvolutionAxis &down = a.window->vertical, &across = a.window->horizontal;
    const bool one_tap = down.filter * across.filter == 1;
    if (one_tap || std::min(down.dilation, across.dilation) < 1 || a.window->channels % kernels.height != 0)
        return std::nullopt;
    const std::int64_t images = problem.k / a.window->rows_of_image();
    if (images % 2 != 0 && down.output % 2 != 0) return std::nullopt;
    return ImagePairs(problem, kernels);
}

ImagePairs::ImagePairs(const ContractionProblem& problem, const ContractionKernels& kernels)
    : window_(*problem.a.window),
      height_(kernels.height),
      pack_(kernels.pack_a[static_cast<std::size_t>(PanelSource::across_depth)][1]),
      halves_(problem.k / window_.rows_of_image() % 2 != 0) {
    ConvolutionAxis& down = window_.vertical;
    if (halves_) down.output /= 2;
    second_row_ = halves_ ? down.output * down.stride : 0;
    const std::int64_t lowest = down.image_place(0, 0);
    const std::int64_t highest = down.image_place(down.output - 1, down.filter - 1);
    const std::int64_t begin = std::max(lowest, -second_row_), end = std::min(highest + 1, down.image);
    image_rows_ = {begin, std::max<std::int64_t>(0, end - begin)};
}

PanelRange ImagePairs::rows_of(PanelRange depth) const {
    if (depth.size == 0) return {};
    const ConvolutionAxis& down = window_.vertical;
    const auto packed_row = [&](std::int64_t output_row, std::int64_t tap, std::int64_t behind) {
        const std::int64_t row = down.image_place(output_row % down.output, tap) + behind;
        return output_row / down.output * image_rows_.size +
               std::clamp<std::int64_t>(row - image_rows_.begin, 0, image_rows_.size);
    };
    const std::int64_t pixels = window_.horizontal.output, last = (depth.begin + depth.size) / 2 - 1;
    const std::int64_t begin = packed_row(depth.begin / 2 / pixels, 0, 0);
    const std::int64_t end = packed_row(last / pixels, down.filter - 1, 1);
    return {begin, std::max<std::int64_t>(0, end - begin)};
}

std::int64_t ImagePairs::bytes(std::int64_t k, std::int64_t depth) const {
    std::int64_t rows = 0;
    for (std::int64_t begin = 0; begin < k; begin += depth)
        rows = std::max(rows, rows_of({begin, std::min(depth, k - begin)}).size);
    return rows * row_bytes();
}

const std::byte* ImagePairs::pixels(const std::byte* images, std::int64_t image, std::int64_t row) const {
    if (row < 0 || row >= window_.vertical.image) return nullptr;
    return images + (image * window_.image_pitch + row * window_.row_pitch) * 2;
}

void ImagePairs::pack(const std::byte* images, PanelRange channels, PanelRange depth, std::byte* to) const {
    const PanelRange rows = rows_of(depth);
    const std::int64_t width = window_.horizontal.image;
    to += channels.begin / height_ * block_bytes();
    for (std::int64_t i = 0; i < rows.size; ++i, to += row_bytes()) {
        const std::int64_t group = (rows.begin + i) / image_rows_.size;
        const std::int64_t row = (rows.begin + i) % image_rows_.size + image_rows_.begin;
        const std::byte* const first = pixels(images, halves_ ? group : 2 * group, row);
        const std::byte* const second = pixels(images, halves_ ? group : 2 * group + 1, row + second_row_);
        if (first && second)
            pack_({.source = first + channels.begin * 2,
                   .stride = window_.pixel_pitch,
                   .beside = (second - first) / 2,
                   .lines = channels.size,
                   .depth = 2 * width,
                   .panel = to,
                   .panel_bytes = block_bytes(),
                   .rows_ahead = i + 1 < rows.size ? 2 * width : 0});
        else if (first || second)
            pack_alone(reinterpret_cast<const std::uint16_t*>(first ? first : second), window_, height_,
                       channels, first ? 0 : 16, reinterpret_cast<std::uint32_t*>(to));
    }
}

}  // namespace mantissa::on_cpu
