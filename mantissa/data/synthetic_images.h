// Images of noise and classes drawn at random, the same batch in every step: what benchmarks train on,
// where reading images must not be what is measured.
#pragma once

#include <cstdint>

#include "mantissa/data/batch.h"
#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0 {

/// For models of nn::image_model. Pixels are uniform in [0, 1); of the classes all but the last are drawn, as
/// the tutorial's script does with its labels 0 to 998. The numbers follow from the seed alone.
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
