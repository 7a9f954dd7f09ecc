// Examples that a caller has in memory, as a source of batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

class Examples : public BatchSource {
  public:
    /// All examples: the values [count, ...] of each of the model's inputs, which are copied. Throws
    /// UserError if an input is missing, of another type, has no whole number of examples or another number
    /// than the first, or if there are fewer examples than a step takes (none, in random order).
    Examples(const nn::Model& model, const Batch& all, const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_step,
              std::span<const std::span<std::byte>> inputs) const override;
    std::uint64_t steps_per_epoch() const override;
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }

    std::uint64_t count() const { return count_; }

  private:
    std::uint64_t index_of(std::uint64_t step, std::uint64_t within) const;

    BatchOptions options_;
    std::vector<std::vector<std::byte>> inputs_;  // [count, ...]
    std::uint64_t count_ = 0;
    ReadingOrder reading_;
    std::uint64_t per_step_ = 0;  // examples of a step: N B
};

}  // namespace mantissa
