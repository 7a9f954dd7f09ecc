#include "mantissa/data/packed_chats.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

std::vector<std::vector<std::uint64_t>> pack_chats(const ChatSet& set, TokenRange range, std::int64_t room) {
    std::vector<std::uint64_t> chats;
    for (std::uint64_t chat = 0; chat < set.chats(); ++chat)
        if (set.starts[chat] >= range.begin && set.starts[chat + 1] <= range.end) chats.push_back(chat);
    std::ranges::stable_sort(chats, std::greater<>{},
                             [&](std::uint64_t i) { return set.range_of(i).size(); });
    std::vector<std::vector<std::uint64_t>> sequences;
    std::set<std::pair<std::uint64_t, std::size_t>> open;  // by remaining room, and index
    for (const std::uint64_t chat : chats) {
        const std::uint64_t size = set.range_of(chat).size();
        const auto fullest = open.lower_bound({size, 0});
        std::uint64_t left = static_cast<std::uint64_t>(room);
        std::size_t place = sequences.size();
        if (fullest == open.end()) {
            check(size <= left, "a chat fits into a sequence");
            sequences.emplace_back();
        } else {
            std::tie(left, place) = *fullest;
            open.erase(fullest);
        }
        sequences[place].push_back(chat);
        if (left > size) open.insert({left - size, place});
    }
    return sequences;
}

PackedChats::PackedChats(const ChatSet& set, TokenRange range, std::int64_t sequence,
                         const BatchOptions& options)
    : set_(&set),
      range_(range),
      length_(static_cast<std::uint64_t>(sequence)),
      options_(options),
      per_step_(static_cast<std::uint64_t>(options.batch * options.accumulate)),
      sequences_(pack_chats(set, range, sequence)) {
    check(options.batch > 0 && sequence > 0 && options.accumulate > 0, "batches have positive sizes");
    const bool random = options.order == BatchOrder::random;
    if (sequences_.size() < (random || options.all ? 1 : per_step_))
        throw UsageError(fmt::format(
            "the chats: {} of {} tokens, but a step takes {}; give more chats, or a smaller `batch`",
            count_text(sequences_.size(), "sequence"), sequence, per_step_));
    for (const std::vector<std::uint64_t>& chats : sequences_) {
        std::uint64_t targets = 0;
        for (const std::uint64_t chat : chats) targets += set.targets_of(chat);
        targets_.push_back(targets);
    }
    reading_ = ReadingOrder({.examples = sequences_.size(),
                             .per_step = per_step_,
                             .in_whole_steps = !random,
                             .epoch = fmt::format("{} sequences of {} tokens of chats {}", sequences_.size(),
                                                  sequence, order_text(options))});
}

std::uint64_t PackedChats::steps_per_epoch() const {
    const std::uint64_t more = options_.all ? per_step_ - 1 : 0;
    return std::max<std::uint64_t>(1, (sequences_.size() + more) / per_step_);
}

std::uint64_t PackedChats::sequence_at(std::uint64_t step, std::uint64_t within) const {
    if (options_.all)
        return std::min<std::uint64_t>(step % steps_per_epoch() * per_step_ + within, sequences_.size());
    const std::uint64_t number = reading_.number_of(step, within);
    if (options_.order == BatchOrder::sequential) return number % reading_.per_epoch();
    const std::uint64_t count = sequences_.size();
    return shuffled(number % count, count, {.seed = options_.seed, .epoch = number / count});
}

std::uint64_t PackedChats::counted(std::uint64_t step) const {
    std::uint64_t count = 0;
    for (std::uint64_t within = 0; within < per_step_; ++within)
        if (const std::uint64_t sequence = sequence_at(step, within); sequence < sequences_.size())
            count += targets_[sequence];
    return count;
}

void PackedChats::fill(std::uint64_t step, std::int64_t micro_batch,
                       std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == 5, "packed chats are five inputs");
    const auto numbers = [&](std::size_t input) {
        return std::span(reinterpret_cast<std::int32_t*>(inputs[input].data()),
                         inputs[input].size() / sizeof(std::int32_t));
    };
    const auto tokens = numbers(0), targets = numbers(1), documents = numbers(2), positions = numbers(3);
    check(tokens.size() == static_cast<std::size_t>(options_.batch) * length_, "tokens are [B, T]");
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, -1);
    std::ranges::fill(positions, 0);
    for (std::size_t row = 0; row < tokens.size(); row += length_) {
        const std::uint64_t within = static_cast<std::uint64_t>(micro_batch * options_.batch) + row / length_;
        const std::uint64_t sequence = sequence_at(step, within);
        std::int32_t document = 0;
        std::size_t at = row;
        if (sequence < sequences_.size())
            for (const std::uint64_t chat : sequences_[sequence]) {
                const TokenRange range = set_->range_of(chat);
                for (std::uint64_t i = range.begin; i < range.end; ++i, ++at) {
                    tokens[at] = set_->tokens[i];
                    documents[at] = document;
                    positions[at] = static_cast<std::int32_t>(i - range.begin);
                    if (i + 1 < range.end && set_->trained[i + 1] != 0) targets[at] = set_->tokens[i + 1];
                }
                ++document;
            }
        for (; at < row + length_; ++at) documents[at] = document++;
    }
    const auto of_step = static_cast<double>(std::max<std::uint64_t>(1, counted(step)));
    const std::span shares(reinterpret_cast<float*>(inputs[4].data()), inputs[4].size() / sizeof(float));
    std::ranges::fill(shares, static_cast<float>(of_step / static_cast<double>(options_.accumulate)));
}

std::string PackedChats::description() const {
    Checksum all;
    all.add(std::as_bytes(std::span(set_->tokens).subspan(range_.begin, range_.size())));
    all.add(std::as_bytes(std::span(set_->trained).subspan(range_.begin, range_.size())));
    return fmt::format("{} of chats, packed into {} of {}{}, with checksum {}", range_.size(),
                       count_text(sequences_.size(), "sequence"), length_,
                       options_.order == BatchOrder::random ? " at random" : "", checksum_text(all.value()));
}

}  // namespace mantissa::inline v0
