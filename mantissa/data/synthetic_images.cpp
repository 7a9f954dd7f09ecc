#include "mantissa/data/synthetic_images.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::inline v0 {

namespace {

// Separate pixels and classes, and both from initial weights, which use hashes of names.
constexpr std::uint32_t of_pixels = 0x696d6730, of_classes = 0x696d6731;

}  // namespace

void SyntheticImages::fill(std::uint64_t, std::int64_t micro_batch,
                           std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == 2, "a network for images takes images and their classes");
    const std::span pixels(reinterpret_cast<float*>(inputs[0].data()), inputs[0].size() / sizeof(float));
    const std::span classes(reinterpret_cast<std::int32_t*>(inputs[1].data()),
                            inputs[1].size() / sizeof(std::int32_t));
    const auto part = static_cast<std::uint32_t>(micro_batch);
    const RandomStream noise{.seed = seed_, .step = part, .operation = of_pixels};
    for (std::size_t first = 0; first < pixels.size(); first += 4) {
        const auto words = noise.block(first / 4);
        for (std::size_t i = first; i < std::min(first + 4, pixels.size()); ++i)
            pixels[i] = uniform_from_bits(words[i - first]);
    }
    const RandomStream labels{.seed = seed_, .step = part, .operation = of_classes};
    const auto drawn = static_cast<std::uint64_t>(sizes_.classes - 1);
    for (std::size_t i = 0; i < classes.size(); ++i)
        classes[i] = static_cast<std::int32_t>(labels.bits(i) * drawn >> 32);
}

std::string SyntheticImages::description() const {
    return fmt::format("synthetic images of {0} x {0} pixels, {1} classes, seed {2}", sizes_.image,
                       sizes_.classes, seed_);
}

}  // namespace mantissa
