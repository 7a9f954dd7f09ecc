#include "cli/explain_steps.h"

#include <algorithm>
#include <span>

#include "mantissa/data/synthetic_images.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// Tokens without a text: a roofline depends on sizes, not on words. A sequence of packed documents is one
/// document, with the largest attention.
class SomeTokens final : public BatchSource {
  public:
    SomeTokens(std::int64_t vocabulary, std::int64_t sequence)
        : vocabulary_(vocabulary), sequence_(sequence) {}

    void fill(std::uint64_t, std::int64_t, std::span<const std::span<std::byte>> inputs) const override {
        for (const std::span<std::byte> bytes : inputs.first(2)) {
            const std::span tokens(reinterpret_cast<std::int32_t*>(bytes.data()), bytes.size() / 4);
            for (std::size_t i = 0; i < tokens.size(); ++i)
                tokens[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 7919 % vocabulary_);
        }
        if (inputs.size() == 2) return;
        const std::span documents(reinterpret_cast<std::int32_t*>(inputs[2].data()), inputs[2].size() / 4),
            positions(reinterpret_cast<std::int32_t*>(inputs[3].data()), inputs[3].size() / 4);
        std::ranges::fill(documents, 0);
        for (std::size_t i = 0; i < positions.size(); ++i)
            positions[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % sequence_);
        const std::span counted(reinterpret_cast<float*>(inputs[4].data()), inputs[4].size() / 4);
        std::ranges::fill(counted, static_cast<float>(positions.size()));
    }
    std::uint64_t steps_per_epoch() const override { return 1; }
    std::string description() const override { return "tokens without a text"; }

  private:
    std::int64_t vocabulary_, sequence_;
};

}  // namespace

TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target) {
    TrainerOptions settings = trainer_options(options);
    settings.policy = policy;
    choose_passes(options, target, settings);
    return settings;
}

std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model) {
    if (nn::is_image_model(options.model))
        return std::make_unique<SyntheticImages>(nn::image_sizes(options.model, options.images),
                                                 options.seed);
    return std::make_unique<SomeTokens>(language_model(options).vocabulary, model.units_per_example);
}

}  // namespace mantissa::cli
