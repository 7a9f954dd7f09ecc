#include "mantissa/device/cpu/attention/score_work.h"

#include <algorithm>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The blocks of queries that see a column of key_lanes keys: how many, and from which to which.
struct SeenColumn {
    std::int64_t count = 0;
    Range blocks = {};
};

class TableOfHeads {
  public:
    TableOfHeads(const AttentionSize& size, const BlockTable& table, std::int64_t key_head)
        : size_(size), table_(table), first_head_(key_head * size.group) {}

    SeenColumn column(std::int64_t first_key) const {
        const std::int64_t rows = ceil_div(size_.queries, table_positions);
        const std::int64_t columns = ceil_div(size_.keys, table_positions);
        const std::int64_t first = first_key / table_positions;
        const std::int64_t last = std::min(columns, first + key_lanes / table_positions);
        SeenColumn seen{.blocks = {rows, 0}};
        for (std::int64_t row = hidden_rows(first_key); row < rows; ++row) {
            const std::int64_t count = seen_in(row, {first, last});
            if (count == 0) continue;
            seen.count += count;
            seen.blocks = {std::min(seen.blocks.first, row), row + 1};
        }
        return seen;
    }

  private:
    /// Blocks of queries that the causal mask keeps from a key.
    std::int64_t hidden_rows(std::int64_t key) const {
        const std::int64_t ahead = size_.keys - size_.queries;
        return size_.causal && key > ahead ? (key - ahead) / table_positions : 0;
    }
    std::int64_t seen_in(std::int64_t row, Range columns) const {
        if (!table_.blocks) return columns.last - columns.first;
        const std::int64_t width = ceil_div(size_.keys, table_positions);
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < size_.group; ++i) {
            const std::int64_t head = first_head_ + i;
            const Sees* const blocks = table_.blocks + head / size_.heads * table_.sequence +
                                       head % size_.heads * table_.head + row * width;
            for (std::int64_t column = columns.first; column < columns.last; ++column)
                count += blocks[column] != Sees::nothing;
        }
        return count;
    }

    const AttentionSize& size_;
    const BlockTable& table_;
    std::int64_t first_head_;
};

/// The cost of a block of keys beside its products, in blocks of 32 x 32: packing it, and storing dk and dv.
constexpr std::int64_t own_cost = 2;

}  // namespace

void cut_segments(const AttentionSize& size, const BlockTable& table, std::int64_t key_head,
                  std::int64_t keys_of_segment, std::span<Segment> segments) {
    if (!table.blocks) {
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const std::int64_t first = static_cast<std::int64_t>(i) * keys_of_segment;
            segments[i] = {{first, std::min(size.keys, first + keys_of_segment)}, {0, size.queries}};
        }
        return;
    }
    const TableOfHeads heads(size, table, key_head);
    std::int64_t total = 0;
    for (std::int64_t key = 0; key < size.keys; key += key_lanes) total += heads.column(key).count + own_cost;
    const auto count = static_cast<std::int64_t>(segments.size());
    std::int64_t passed = 0, key = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        Segment& segment = segments[i];
        const std::int64_t rows = ceil_div(size.queries, table_positions);
        Range blocks{rows, 0};
        segment.keys = {key, key};
        while (key < size.keys && (i + 1 == count || passed * count < total * (i + 1))) {
            const SeenColumn seen = heads.column(key);
            passed += seen.count + own_cost;
            blocks = {std::min(blocks.first, seen.blocks.first), std::max(blocks.last, seen.blocks.last)};
            key = std::min(size.keys, key + key_lanes);
        }
        segment.keys.last = key;
        segment.queries = {std::min(size.queries, blocks.first * table_positions),
                           std::min(size.queries, blocks.last * table_positions)};
        segment.queries.last = std::max(segment.queries.first, segment.queries.last);
    }
}

bool is_dense(const ScoreGradient& gradient) {
    const PairStrides& s = gradient.strides;
    return s.query != 0 && s.key != 0 && s.query != -s.key;
}

ScoreOrder::ScoreOrder(const AttentionSize& size, const Score* score) {
    for (std::int64_t i = 0; score && i < score->gradient_count; ++i) {
        const ScoreGradient& gradient = score->gradients[i];
        if (!is_dense(gradient)) continue;
        joins_sequences = joins_sequences || (size.sequences > 1 && gradient.strides.sequence == 0);
        joins_heads = joins_heads || (size.heads > size.group && gradient.strides.head == 0);
    }
}

std::int64_t ScoreOrder::pieces(const AttentionSize& size) const {
    return (joins_sequences ? 1 : size.sequences) * (joins_heads ? 1 : size.heads / size.group);
}

void ScoreOrder::for_each_head(const AttentionSize& size, std::int64_t piece,
                               FunctionRef<void(std::int64_t)> f) const {
    const std::int64_t key_heads = size.heads / size.group, heads = joins_heads ? 1 : key_heads;
    const std::int64_t sequence = joins_sequences ? 0 : piece / heads, head = joins_heads ? 0 : piece % heads;
    for (std::int64_t b = sequence; b < (joins_sequences ? size.sequences : sequence + 1); ++b)
        for (std::int64_t g = head; g < (joins_heads ? key_heads : head + 1); ++g) f(b * key_heads + g);
}

ScoreSums::ScoreSums(const AttentionSize& size, const Score* score, std::int64_t segments)
    : size_(size), score_(score && score->sums ? score : nullptr), segments_(segments) {
    if (!score_) return;
    items_ = size.sequences * size.heads / size.group * segments;
    for (std::int64_t i = 0; i < score_->gradient_count; ++i) each_ += own(score_->gradients[i]);
}

/// Elements of a head that an item adds to, where it has its own.
std::int64_t ScoreSums::inner(const ScoreGradient& gradient) const {
    const PairStrides& s = gradient.strides;
    if (s.query != 0 && s.key != 0) return size_.queries + size_.keys - 1;
    return s.query != 0 ? size_.queries : s.key != 0 ? size_.keys : 1;
}

std::int64_t ScoreSums::own(const ScoreGradient& gradient) const {
    if (is_dense(gradient)) return 0;
    // Cache lines of their own: neighbours are other threads'.
    return align_up((gradient.strides.head != 0 ? size_.group : 1) * inner(gradient), 16);
}

void ScoreSums::begin(ThreadPool& pool) const {
    if (!score_) return;
    constexpr std::int64_t piece = 1 << 16;
    for (std::int64_t i = 0; i < score_->gradient_count; ++i) {
        const ScoreGradient& gradient = score_->gradients[i];
        pool.for_each_block(ceil_div(gradient.count, piece), [&](std::int64_t block, int) {
            const std::int64_t first = block * piece;
            std::fill_n(gradient.data + first, std::min(piece, gradient.count - first), 0.0f);
        });
    }
}

void ScoreSums::of_item(float* sums, std::int64_t key_head, std::int64_t segment, ScoreGradient* to) const {
    if (!score_) return;
    float* own_sums = sums + (key_head * segments_ + segment) * each_;
    std::fill_n(own_sums, each_, 0.0f);
    for (std::int64_t i = 0; i < score_->gradient_count; ++i) {
        const ScoreGradient& gradient = score_->gradients[i];
        to[i] = gradient;
        if (is_dense(gradient)) continue;
        const PairStrides& s = gradient.strides;
        const std::int64_t of_head = s.head != 0 ? inner(gradient) : 0;
        const std::int64_t key_heads = size_.heads / size_.group;
        const bool diagonal = s.query != 0 && s.key != 0;
        to[i].data = own_sums;
        to[i].count = own(gradient);
        to[i].first = (diagonal ? size_.queries - 1 : 0) - key_head % key_heads * size_.group * of_head;
        to[i].strides = {.head = of_head,
                         .query = diagonal       ? -1
                                  : s.query != 0 ? 1
                                                 : 0,
                         .key = s.key != 0 ? 1 : 0};
        own_sums += own(gradient);
    }
}

void ScoreSums::finish(const float* sums) const {
    if (!score_) return;
    const std::int64_t key_heads = size_.heads / size_.group;
    for (std::int64_t item = 0; item < items_; ++item) {
        const std::int64_t key_head = item / segments_;
        const float* own_sums = sums + item * each_;
        for (std::int64_t i = 0; i < score_->gradient_count; ++i) {
            const ScoreGradient& gradient = score_->gradients[i];
            if (is_dense(gradient)) continue;
            const PairStrides& s = gradient.strides;
            const bool diagonal = s.query != 0 && s.key != 0;
            const std::int64_t count = inner(gradient), step = s.key != 0 ? s.key : s.query;
            const std::int64_t before = diagonal ? (size_.queries - 1) * step : 0;
            for (std::int64_t g = 0; g < (s.head != 0 ? size_.group : 1); ++g) {
                const std::int64_t head = key_head % key_heads * size_.group + g;
                float* const to = gradient.data + gradient.first + key_head / key_heads * s.sequence +
                                  head * s.head - before;
                for (std::int64_t e = 0; e < count; ++e) to[e * step] += own_sums[g * count + e];
            }
            own_sums += own(gradient);
        }
    }
}

}  // namespace mantissa::on_cpu
