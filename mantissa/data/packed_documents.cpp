#include "mantissa/data/packed_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

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
    check(inputs.size() == 5, "packed documents are five inputs");
    const auto numbers = [&](std::size_t input) {
        return std::span(reinterpret_cast<std::int32_t*>(inputs[input].data()),
                         inputs[input].size() / sizeof(std::int32_t));
    };
    const auto tokens = numbers(0), targets = numbers(1), documents = numbers(2), positions = numbers(3);
    windows_.fill(step, micro_batch, tokens, targets);
    check(documents.size() == tokens.size() && positions.size() == tokens.size(),
          "documents and positions are [B, T]");
    for (std::size_t begin = 0; begin < tokens.size(); begin += sequence_) {
        const std::uint64_t within =
            static_cast<std::uint64_t>(micro_batch * options_.batch) + begin / sequence_;
        const std::uint64_t start = windows_.start_of(step, within);
        tell_documents_apart({.targets = targets.subspan(begin, sequence_),
                              .documents = documents.subspan(begin, sequence_),
                              .positions = positions.subspan(begin, sequence_)},
                             ends_->within({start, start + sequence_}), start);
    }
    // A step of nothing but ends of documents has no targets, and the loss 0.
    const auto of_step = static_cast<double>(std::max<std::uint64_t>(1, counted(step)));
    const std::span shares(reinterpret_cast<float*>(inputs[4].data()), inputs[4].size() / sizeof(float));
    std::ranges::fill(shares, static_cast<float>(of_step / static_cast<double>(options_.accumulate)));
}

std::string PackedDocuments::description() const {
    return fmt::format("{}; documents packed, ending at token {}", windows_.description(),
                       ends_->tokens_text());
}

}  // namespace mantissa
