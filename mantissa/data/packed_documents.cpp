#include "mantissa/data/packed_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

/// The five inputs of packed documents; see mantissa/nn/documents.h.
struct PackedInputs {
    std::span<std::int32_t> tokens, targets, documents, positions;  // [B, T]
    std::span<float> counted;                                       // [B, T] or [B]

    explicit PackedInputs(std::span<const std::span<std::byte>> inputs) {
        check(inputs.size() == 5, "packed documents are five inputs");
        std::size_t next = 0;
        for (std::span<std::int32_t>* numbers : {&tokens, &targets, &documents, &positions}) {
            const std::span<std::byte> bytes = inputs[next++];
            *numbers = {reinterpret_cast<std::int32_t*>(bytes.data()), bytes.size() / sizeof(std::int32_t)};
        }
        counted = {reinterpret_cast<float*>(inputs[4].data()), inputs[4].size() / sizeof(float)};
        check(documents.size() == tokens.size() && positions.size() == tokens.size(),
              "documents and positions are [B, T]");
    }

    /// Shares a step's targets; a step without targets, of ends of documents only, has the loss 0.
    void share(std::uint64_t targets_of_step, std::int64_t micro_batches) const {
        const auto of_step = static_cast<double>(std::max<std::uint64_t>(1, targets_of_step));
        std::ranges::fill(counted, static_cast<float>(of_step / static_cast<double>(micro_batches)));
    }
};

bool is_among(std::span<const std::int32_t> ends, std::int32_t token) {
    return std::ranges::find(ends, token) != ends.end();
}

}  // namespace

DocumentEnds::DocumentEnds(const TokenStream& stream, DocumentMarks marks) : marks_(std::move(marks)) {
    constexpr std::uint64_t at_once = 1 << 20;
    std::vector<std::int32_t> tokens;
    std::uint64_t first = 0;  // of the document
    for (std::uint64_t begin = 0; begin < stream.size(); begin += tokens.size()) {
        tokens.resize(std::min(at_once, stream.size() - begin));
        stream.copy(begin, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (!is_among(marks_.ends, tokens[i])) continue;
            if (begin + i == first && marks_.first == tokens[i]) continue;
            positions_.push_back(begin + i);
            first = begin + i + 1;
        }
    }
    if (positions_.empty())
        throw UserError(fmt::format(
            "{}: documents end at token {}, which is none of its {} tokens; was it tokenized without marks "
            "between documents, or with another tokenizer?",
            stream.source(), tokens_text(), stream.size()));
}

std::string DocumentEnds::tokens_text() const { return fmt::format("{}", fmt::join(marks_.ends, " or ")); }

std::span<const std::uint64_t> DocumentEnds::within(TokenRange range) const {
    const auto first = std::ranges::lower_bound(positions_, range.begin);
    return {first, std::lower_bound(first, positions_.end(), range.end)};
}

void tell_documents_apart(const PackedSequence& sequence, std::span<const std::uint64_t> ends,
                          std::uint64_t start) {
    std::int32_t document = 0, position = 0;
    for (std::size_t i = 0; i < sequence.documents.size(); ++i) {
        sequence.documents[i] = document;
        sequence.positions[i] = position++;
        if (ends.empty() || ends[0] != start + i) continue;
        ends = ends.subspan(1);
        sequence.targets[i] = -1;
        ++document;
        position = 0;
    }
}

PackedDocuments::PackedDocuments(const TokenStream& stream, const DocumentEnds& ends, TokenRange range,
                                 std::int64_t sequence, const BatchOptions& options)
    : ends_(&ends),
      windows_(stream, range, sequence, options),
      sequence_(static_cast<std::uint64_t>(sequence)),
      options_(options) {}

std::uint64_t PackedDocuments::counted(std::uint64_t step) const {
    std::uint64_t count = 0;
    for (std::int64_t sequence = 0; sequence < options_.accumulate * options_.batch; ++sequence) {
        const std::uint64_t begin = windows_.start_of(step, static_cast<std::uint64_t>(sequence));
        const std::uint64_t targets = windows_.targets_of(step, static_cast<std::uint64_t>(sequence));
        count += targets - ends_->among({begin, begin + targets});
    }
    return count;
}

void PackedDocuments::fill(std::uint64_t step, std::int64_t micro_batch,
                           std::span<const std::span<std::byte>> inputs) const {
    const PackedInputs packed(inputs);
    windows_.fill(step, micro_batch, packed.tokens, packed.targets);
    for (std::size_t begin = 0; begin < packed.tokens.size(); begin += sequence_) {
        const std::uint64_t within =
            static_cast<std::uint64_t>(micro_batch * options_.batch) + begin / sequence_;
        const std::uint64_t start = windows_.start_of(step, within);
        tell_documents_apart({.targets = packed.targets.subspan(begin, sequence_),
                              .documents = packed.documents.subspan(begin, sequence_),
                              .positions = packed.positions.subspan(begin, sequence_)},
                             ends_->within({start, start + sequence_}), start);
    }
    packed.share(counted(step), options_.accumulate);
}

std::string PackedDocuments::description() const {
    return fmt::format("{}; documents packed, ending at token {}", windows_.description(),
                       ends_->tokens_text());
}

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
    const PackedInputs packed(inputs);
    const auto [tokens, targets, documents, positions, counts] = packed;
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
    packed.share(counted(step), options_.accumulate);
}

std::string PackedChats::description() const {
    Checksum all;
    all.add(std::as_bytes(std::span(set_->tokens).subspan(range_.begin, range_.size())));
    all.add(std::as_bytes(std::span(set_->trained).subspan(range_.begin, range_.size())));
    return fmt::format("{} of chats, packed into {} of {}{}, with checksum {}", range_.size(),
                       count_text(sequences_.size(), "sequence"), length_,
                       options_.order == BatchOrder::random ? " at random" : "", checksum_text(all.value()));
}

}  // namespace mantissa
