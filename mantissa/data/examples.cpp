#include "mantissa/base/printable.h"
#include "mantissa/data/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

Examples::Examples(const nn::Model& model, const Batch& all, const BatchOptions& options)
    : options_(options) {
    check(options.batch > 0 && options.accumulate > 0, "batches have positive sizes");
    per_step_ = static_cast<std::uint64_t>(options.batch * options.accumulate);
    count_ = static_cast<std::uint64_t>(examples_in(all, model));
    require_fit(all, model, static_cast<std::int64_t>(count_));
    const std::uint64_t needed = options.order == BatchOrder::random ? 1 : per_step_;
    if (count_ < needed)
        throw UserError(fmt::format("model {}: {}, but a step takes {}; give more, or lower the batch",
                                    model.name, count_text(count_, "example"), per_step_));
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        const std::span<const std::byte> bytes = all.values()[i].bytes;
        inputs_.emplace_back(bytes.begin(), bytes.end());
        is_whole_.push_back(model.inputs[i].batch_axis == nn::BatchAxis::none);
    }
    reading_ = ReadingOrder({.examples = count_,
                             .per_step = per_step_,
                             .in_whole_steps = options.order == BatchOrder::sequential,
                             .epoch = fmt::format("{} examples {}", count_, order_text(options))});
}

std::uint64_t Examples::steps_per_epoch() const { return std::max<std::uint64_t>(1, count_ / per_step_); }

std::uint64_t Examples::index_of(std::uint64_t step, std::uint64_t within) const {
    const std::uint64_t number = reading_.number_of(step, within);
    if (options_.order == BatchOrder::sequential) return number % reading_.per_epoch();
    return shuffled(number % count_, count_, {.seed = options_.seed, .epoch = number / count_});
}

void Examples::fill(std::uint64_t step, std::int64_t micro_batch,
                    std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == inputs_.size(), "a batch has as many inputs as the model");
    const auto B = static_cast<std::uint64_t>(options_.batch);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (is_whole_[i]) {
            check(inputs[i].size() == inputs_[i].size(), "an input without a batch axis is given whole");
            std::ranges::copy(inputs_[i], inputs[i].begin());
            continue;
        }
        const std::size_t size = inputs_[i].size() / count_;
        check(inputs[i].size() == size * B, "inputs are [B, ...]");
        for (std::uint64_t row = 0; row < B; ++row) {
            const std::uint64_t from = index_of(step, static_cast<std::uint64_t>(micro_batch) * B + row);
            std::copy_n(inputs_[i].begin() + static_cast<std::ptrdiff_t>(from * size), size,
                        inputs[i].begin() + static_cast<std::ptrdiff_t>(row * size));
        }
    }
}

std::string Examples::description() const {
    std::string text = fmt::format("{} examples{}, checksums", count_,
                                   options_.order == BatchOrder::random ? " in random order" : "");
    for (const std::vector<std::byte>& input : inputs_) text += " " + checksum_text(checksum_of(input));
    return text;
}

}  // namespace mantissa
