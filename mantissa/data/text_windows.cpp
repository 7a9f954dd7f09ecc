#include "mantissa/data/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

std::uint64_t rounded_up_parts(std::uint64_t size, std::uint64_t part) {
    return static_cast<std::uint64_t>(
        ceil_div(static_cast<std::int64_t>(size), static_cast<std::int64_t>(part)));
}

}  // namespace

TextWindows::TextWindows(const TokenStream& stream, TokenRange range, std::int64_t sequence,
                         const BatchOptions& options)
    : stream_(&stream), range_(range), sequence_(static_cast<std::uint64_t>(sequence)), options_(options) {
    check(options.batch > 0 && sequence > 0 && options.accumulate > 0, "batches have positive sizes");
    check(range.begin <= range.end && range.end <= stream.size(), "batches are taken from within the stream");
    sequences_ = static_cast<std::uint64_t>(options.accumulate * options.batch);
    const std::uint64_t targets = range.size() > 0 ? range.size() - 1 : 0;
    windows_ = options.all ? rounded_up_parts(targets, sequence_) : targets / sequence_;
    const bool random = options.order == BatchOrder::random;
    const std::uint64_t needed = random || options.all ? 1 : sequences_;
    if (windows_ < needed && needed == 1)
        throw UsageError(fmt::format(
            "{}: {}, but {} needs {}; give more text{}", stream.source(), count_text(range.size(), "token"),
            options.all ? "a loss" : fmt::format("a sequence of {}", sequence),
            options.all ? 2 : sequence_ + 1,
            options.all || targets == 0 ? "" : fmt::format(", or a `sequence` of at most {}", targets)));
    if (windows_ < needed)
        throw UsageError(fmt::format(
            "{}: {}, but {} of {} x {} (batch x sequence) needs {}; give more text, or lower "
            "`batch` or `sequence`",
            stream.source(), count_text(range.size(), "token"),
            options.accumulate == 1 ? "a step"
                                    : fmt::format("a step of {} micro-batches", options.accumulate),
            options.batch, sequence, needed * sequence_ + 1));
    // One window less leaves room to begin anywhere within a window's length; a text of one window begins
    // within its surplus tokens.
    if (random && windows_ > 1) --windows_;
    if (random) places_ = std::min(sequence_, range.size() - windows_ * sequence_);
    reading_ = ReadingOrder(
        {.examples = windows_,
         .per_step = sequences_,
         .in_whole_steps = !random,
         .epoch = fmt::format("{} windows of {} tokens {}", windows_, sequence, order_text(options))});
}

std::uint64_t TextWindows::steps_per_epoch() const {
    return std::max<std::uint64_t>(
        1, options_.all ? rounded_up_parts(windows_, sequences_) : windows_ / sequences_);
}

std::uint64_t TextWindows::targets_of(std::uint64_t step, std::uint64_t within) const {
    const std::uint64_t start = start_of(step, within);
    return start + 1 < range_.end ? std::min(sequence_, range_.end - 1 - start) : 0;
}

std::uint64_t TextWindows::counted(std::uint64_t step) const {
    std::uint64_t targets = 0;
    for (std::uint64_t within = 0; within < sequences_; ++within) targets += targets_of(step, within);
    return targets;
}

std::uint64_t TextWindows::start_of(std::uint64_t step, std::uint64_t within) const {
    if (options_.all) return range_.begin + (step % steps_per_epoch() * sequences_ + within) * sequence_;
    const std::uint64_t number = reading_.number_of(step, within);
    if (options_.order == BatchOrder::sequential)
        return range_.begin + number % reading_.per_epoch() * sequence_;
    const ShuffleKey key{.seed = options_.seed, .epoch = number / windows_};
    const std::uint64_t window = shuffled(number % windows_, windows_, key);
    return range_.begin + shuffled(0, places_, {.seed = ~options_.seed, .epoch = key.epoch}) +
           window * sequence_;
}

void TextWindows::fill(std::uint64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) const {
    const auto B = static_cast<std::size_t>(options_.batch), T = static_cast<std::size_t>(sequence_);
    check(tokens.size() == B * T && targets.size() == B * T, "tokens and targets are [B, T]");
    check(micro_batch >= 0 && micro_batch < options_.accumulate, "a micro-batch is one of the step's");
    std::vector<std::int32_t> window(T + 1);
    for (std::size_t row = 0; row < B; ++row) {
        const std::uint64_t within = static_cast<std::uint64_t>(micro_batch) * B + row;
        const auto there = static_cast<std::size_t>(targets_of(step, within));
        const std::span row_tokens = tokens.subspan(row * T, T), row_targets = targets.subspan(row * T, T);
        std::ranges::fill(row_tokens.subspan(there), 0);
        std::ranges::fill(row_targets.subspan(there), -1);
        if (there == 0) continue;
        stream_->copy(start_of(step, within), std::span(window).first(there + 1));
        std::copy_n(window.begin(), there, row_tokens.begin());
        std::copy_n(window.begin() + 1, there, row_targets.begin());
    }
}

void TextWindows::fill(std::uint64_t step, std::int64_t micro_batch,
                       std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == 2, "sequences of a text are two inputs: tokens and targets");
    const auto as_tokens = [](std::span<std::byte> bytes) {
        return std::span(reinterpret_cast<std::int32_t*>(bytes.data()), bytes.size() / sizeof(std::int32_t));
    };
    fill(step, micro_batch, as_tokens(inputs[0]), as_tokens(inputs[1]));
}

std::string TextWindows::description() const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(options_.batch) * sequence_),
        targets(tokens.size());
    Checksum of_step;
    for (std::int64_t micro_batch = 0; micro_batch < options_.accumulate; ++micro_batch) {
        fill(0, micro_batch, tokens, targets);
        of_step.add(std::as_bytes(std::span(tokens)));
    }
    return fmt::format("{}{}, the first step's with checksum {}", range_.size(),
                       options_.order == BatchOrder::random ? " at random places" : "",
                       checksum_text(of_step.value()));
}

}  // namespace mantissa
