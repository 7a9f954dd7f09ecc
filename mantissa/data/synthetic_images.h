// Images of noise with random classes, the same batch in every step: for benchmarks that must not measure the
// reading of images.
#pragma once

#include <cstdint>

#include "mantissa/data/batch.h"
#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0 {

/// For models of nn::image_model. Pixels are uniform in [0, 1); classes are drawn from all but the last, as
/// in the tutorial's script with its labels 0 to 998. All numbers follow from the seed.
class SyntheticImages final : public BatchSource {
  public:
    SyntheticImages(const nn::ImageSizes& sizes, std::uint64_t seed) : sizes_(sizes), seed_(seed) {}

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    std::uint64_t steps_per_epoch() const override { return 1; }
    std::string description() const override;

  private:
    nn::ImageSizes sizes_;
    std::uint64_t seed_;
};

}  // namespace mantissa
