#include "mantissa/device/cpu/contraction/pixel_words.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mantissa::inline v0::on_cpu {

namespace {

alignas(64) constexpr std::array<std::byte, 64> no_pixel{};

void pack_run(const PixelRun& run) {
    const std::byte *before = run.before, *here = run.first;
    std::byte* to[2] = {run.to, run.to_next};
    for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel, before = here, here += run.step) {
        std::byte*& word = to[pixel % 2];
        for (std::int64_t channel = 0; channel < PixelWords::block_channels; ++channel) {
            std::memcpy(word + channel * 4, before + channel * 2, 2);
            std::memcpy(word + channel * 4 + 2, here + channel * 2, 2);
        }
        word += PixelWords::word_bytes;
    }
}

/// Whether a tap that leaves the image along this axis meets zeros. Only the first `outputs` of the outputs
/// are multiplied by numbers.
bool leaves_to_zeros(const ConvolutionAxis& axis, std::int64_t outputs) {
    ConvolutionAxis multiplied = axis;
    multiplied.output = outputs;
    return axis.stride == 1 && axis.dilation >= 1 && axis.output >= outputs_with_zeros(multiplied);
}

/// Whether a is gathered pixel by pixel, in the images' order.
bool is_of_pixels(const ConvolutionAxis& axis) {
    return axis.filter == 1 && axis.stride == 1 && axis.before == 0;
}

}  // namespace

std::int64_t outputs_with_zeros(const ConvolutionAxis& axis) {
    const std::int64_t reach = (axis.filter - 1) * axis.dilation - axis.before;
    return std::max(axis.image + axis.before, axis.output + std::max<std::int64_t>(0, reach));
}

std::optional<PixelWords> PixelWords::of(const ContractionProblem& problem,
                                         const ContractionKernels& kernels) {
    const MatrixLayout &a = problem.a, &b = problem.b;
    if (!kernels.interleaves() || kernels.conversion.convert || b.dtype != DType::bf16 || !b.window ||
        !a.window || b.transpose == Transpose::yes || problem.keeps_b)
        return std::nullopt;
    const ConvolutionAxis &down = a.window->vertical, &across = a.window->horizontal;
    if (!is_of_pixels(down) || !is_of_pixels(across) || b.window->channels % block_channels != 0 ||
        !leaves_to_zeros(b.window->vertical, down.image) ||
        !leaves_to_zeros(b.window->horizontal, across.image))
        return std::nullopt;
    return PixelWords(problem, kernels);
}

PixelWords::PixelWords(const ContractionProblem& problem, const ContractionKernels& kernels)
    : window_(*problem.b.window),
      pack_(kernels.pack_pixels ? kernels.pack_pixels : pack_run),
      depth_unit_(kernels.depth_unit),
      places_(problem.k),
      first_tap_(window_.vertical.before * window_.horizontal.output + window_.horizontal.before),
      last_tap_(pixels_to(window_.vertical.filter * window_.horizontal.filter - 1)) {}

std::int64_t PixelWords::pixels_to(std::int64_t tap) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    return tap / across.filter * down.dilation * across.output + tap % across.filter * across.dilation;
}

std::int64_t PixelWords::place(std::int64_t column, std::int64_t depth) const {
    const std::int64_t pixels = pixels_to(column / window_.channels);
    return column % window_.channels / block_channels * block_bytes(depth) +
           (pixels % 2 * words(depth) + pixels / 2) * word_bytes;
}

const std::byte* PixelWords::pixel(const std::byte* images, std::int64_t place, std::int64_t& run) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    run = place < 0 ? -place : pixels_of_image();
    if (place < 0 || place >= places_) return nullptr;
    const std::int64_t image = place / pixels_of_image(), in_image = place % pixels_of_image();
    const std::int64_t row = in_image / across.output, column = in_image % across.output;
    run = across.output - column;
    if (row >= down.image || column >= across.image) return nullptr;
    run = across.image - column;
    return images +
           (image * window_.image_pitch + row * window_.row_pitch + column * window_.pixel_pitch) * 2;
}

void PixelWords::pack(const std::byte* images, PanelRange channels, PanelRange depth, std::byte* to) const {
    const std::int64_t first = depth.begin - first_tap_, copy_bytes = words(depth.size) * word_bytes;
    to += channels.begin / block_channels * block_bytes(depth.size);
    const std::byte* before = nullptr;
    // The word of pixels p - 1 and p is word p / 2 from even pixels on where p is odd, and word p / 2 - 1
    // from odd ones where it is even. Pixel 0 ends no word.
    for (std::int64_t p = 0, end = 2 * words(depth.size) + 1; p < end;) {
        std::int64_t count = 0;
        const std::byte* const here = pixel(images, first + p, count);
        count = std::min(p == 0 ? 1 : count, end - p);
        const std::int64_t step = here ? window_.pixel_pitch * 2 : 0;
        if (p > 0)
            for (std::int64_t channel = 0; channel < channels.size; channel += block_channels) {
                std::byte* const even = to + channel / block_channels * block_bytes(depth.size);
                std::byte* const odd = even + copy_bytes;
                const auto of_block = [&](const std::byte* pixel) {
                    return pixel ? pixel + (channels.begin + channel) * 2 : no_pixel.data();
                };
                std::byte* const words_of[] = {odd + (p / 2 - 1) * word_bytes, even + p / 2 * word_bytes};
                pack_({.before = of_block(before),
                       .first = of_block(here),
                       .step = step,
                       .pixels = count,
                       .to = words_of[p % 2],
                       .to_next = p % 2 == 0 ? even + p / 2 * word_bytes : odd + p / 2 * word_bytes});
            }
        before = here ? here + (count - 1) * step : nullptr;
        p += count;
    }
}

}  // namespace mantissa::on_cpu
