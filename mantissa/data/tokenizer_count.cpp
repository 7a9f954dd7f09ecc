// Counting pieces for the tokenizer's trainer.
#include <algorithm>
#include <atomic>
#include <functional>

#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_split.h"
#include "mantissa/data/tokenizer_train.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t longest_counted = 256;
constexpr std::size_t part_bytes = std::size_t{1} << 20;

struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// As PieceCounts, but found by string_view, so that only new pieces are copied.
using Counter = std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>>;

void count_piece(std::string_view piece, Counter& counter) {
    const auto known = counter.find(piece);
    if (known != counter.end())
        ++known->second;
    else
        counter.emplace(piece, 1);
}

void count_part(std::string_view text, Counter& counter) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = gpt2_pattern().find(text, begin).end;
        for (; begin < end; begin += std::min(longest_counted, end - begin))
            count_piece(text.substr(begin, std::min(longest_counted, end - begin)), counter);
    }
}

}  // namespace

PieceCounts count_pieces(std::span<const std::filesystem::path> texts, ThreadPool& pool,
                         TrainObserver observer) {
    std::vector<TextFile> files;
    std::uint64_t total = 0;
    for (const auto& path : texts) total += files.emplace_back(path).text().size();

    const SafeCuts cuts(TextPipeline::gpt2());
    std::vector<Counter> counters(pool.threads());
    std::atomic<std::uint64_t> done = 0;
    for (const TextFile& file : files) {
        const auto parts = cut_text(file.text(), part_bytes, cuts);
        pool.for_each_block(static_cast<std::int64_t>(parts.size()), [&](std::int64_t block, int worker) {
            const std::string_view part = parts[block];
            count_part(part, counters[worker]);
            const std::uint64_t bytes = done += part.size();
            if (worker == 0) observer({"counting", bytes, total});
        });
    }
    PieceCounts counts;
    for (Counter& counter : counters) {
        for (const auto& [piece, count] : counter) counts[piece] += count;
        counter = {};
    }
    return counts;
}

}  // namespace mantissa
