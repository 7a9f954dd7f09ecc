#include "mantissa/data/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/data/permutation.h"

namespace mantissa {

BatchSource::BatchSource(const TokenStream& stream, TokenRange range, const Options& options)
    : stream_(&stream), range_(range), options_(options) {
    check(options.batch > 0 && options.sequence > 0 && options.accumulate > 0, "batches have positive sizes");
    check(range.begin <= range.end && range.end <= stream.size(), "batches are taken from within the stream");
    const auto T = static_cast<std::uint64_t>(options.sequence);
    sequences_ = static_cast<std::uint64_t>(options.accumulate * options.batch);
    windows_ = range.size() > 0 ? (range.size() - 1) / T : 0;
    const std::uint64_t needed = options.order == TokenOrder::shuffled ? 1 : sequences_;
    if (windows_ < needed)
        throw UserError(fmt::format(
            "{}: {} tokens, but {} of {} x {} (batch x sequence) needs {}; give more text, or lower "
            "--batch or --sequence",
            stream.source(), range.size(),
            options.accumulate == 1 ? "a step" : fmt::format("a step of {} micro-steps", options.accumulate),
            options.batch, options.sequence, needed * T + 1));
}

std::uint64_t BatchSource::steps_per_epoch() const { return windows_ / sequences_; }

std::uint64_t BatchSource::start_of(std::uint64_t step, std::uint64_t micro_step, std::uint64_t row) const {
    const auto B = static_cast<std::uint64_t>(options_.batch),
               T = static_cast<std::uint64_t>(options_.sequence);
    const std::uint64_t within = micro_step * B + row;
    if (options_.order == TokenOrder::sequential)
        return range_.begin + (step % steps_per_epoch() * sequences_ + within) * T;
    const std::uint64_t number =
        step * sequences_ + within;  // of the sequence, counted from the first step on
    const ShuffleKey key{.seed = options_.seed, .epoch = number / windows_};
    return range_.begin + shuffled(number % windows_, windows_, key) * T;
}

void BatchSource::fill(std::uint64_t step, std::int64_t micro_step, std::span<std::int32_t> inputs,
                       std::span<std::int32_t> targets) const {
    const auto B = static_cast<std::size_t>(options_.batch), T = static_cast<std::size_t>(options_.sequence);
    check(inputs.size() == B * T && targets.size() == B * T, "inputs and targets are [B, T]");
    check(micro_step >= 0 && micro_step < options_.accumulate, "a micro-step is one of the step's");
    std::vector<std::int32_t> window(T + 1);
    for (std::size_t row = 0; row < B; ++row) {
        stream_->copy(start_of(step, static_cast<std::uint64_t>(micro_step), row), window);
        std::copy_n(window.begin(), T, inputs.begin() + static_cast<std::ptrdiff_t>(row * T));
        std::copy_n(window.begin() + 1, T, targets.begin() + static_cast<std::ptrdiff_t>(row * T));
    }
}

}  // namespace mantissa
