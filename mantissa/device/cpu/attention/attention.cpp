// Drivers of attention and its gradient: checks, and how the work is cut, from shapes alone.
#include "mantissa/device/cpu/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/device/cpu/attention/score_work.h"
#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The backward pass cuts the keys of a head into segments where there are few heads, so that threads have
/// work to share. Each segment has a dq of its own; these are then added. Sixteen pieces of work and no more
/// than max_segments: then the causal triangle, largest segment first, leaves two threads within a tenth of
/// one another.
constexpr std::int64_t min_pieces = 16;

/// N
std::int64_t all_heads(const AttentionSize& size) { return size.sequences * size.heads; }
/// All heads of keys and values.
std::int64_t all_key_heads(const AttentionSize& size) { return all_heads(size) / size.group; }

std::int64_t segment_keys(const AttentionSize& size, const Score* score) {
    const std::int64_t pieces = ScoreOrder(size, score).pieces(size);
    const std::int64_t wanted = std::clamp<std::int64_t>(ceil_div(min_pieces, pieces), 1, max_segments);
    return align_up(ceil_div(size.keys, wanted), key_lanes);
}

/// Queries whose sums of do * o are one piece of work: 64 KB of each, of heads of 64 in 16 bits.
constexpr std::int64_t delta_rows = 512;

std::int64_t segments_of(const AttentionSize& size, const Score* score) {
    return ceil_div(size.keys, segment_keys(size, score));
}

std::int64_t dq_floats(const AttentionSize& size) { return on_cpu::dq_floats(size.head_size, size.queries); }

/// Whether a thread packs a head's operands right before it reads them, so that they stay in its L2. That
/// needs enough heads for threads to end at about the same time. Else all operands are packed before. The
/// packed operands are the same either way.
constexpr std::int64_t enough_heads = 8;  // of a thread
bool packs_by_heads(const AttentionSize& size, int threads) {
    return all_key_heads(size) >= enough_heads * threads;
}

/// Floats of one form of an operand of so many heads, `rows` each, where the kernels pack it; else 0.
std::int64_t packed_form(const AttentionKernels& kernels, const AttentionSize& size, std::int64_t heads,
                         std::int64_t rows) {
    return kernels.pack ? heads * packed_floats(size.head_size, rows) : 0;
}

/// Heads of keys whose operands are packed at a time: a thread's current one, or all.
std::int64_t packed_key_heads(const AttentionSize& size, int threads) {
    return packs_by_heads(size, threads) ? 1 : all_key_heads(size);
}

/// The layout of the gradient's workspace, in floats; q and do, packed both ways, come first.
struct GradWorkspace {
    bool by_heads;
    std::int64_t packed, delta, each_scratch, scratch, segments, sums, dq, total;

    GradWorkspace(const AttentionKernels& kernels, const AttentionSize& size, const Score* score,
                  int threads) {
        const std::int64_t count = segments_of(size, score);
        const std::int64_t dqs = count == 1 ? threads * size.group : all_heads(size) * count;
        by_heads = kernels.pack && count == 1 && packs_by_heads(size, threads);
        const std::int64_t heads = by_heads ? size.group : all_heads(size);
        packed = packed_form(kernels, size, heads, size.queries);
        delta = 4 * packed * (by_heads ? threads : 1);
        each_scratch = backward_scratch(size.head_size) + (score ? backward_score_scratch(*score) : 0);
        scratch = delta + delta_floats(size) + align_up(all_heads(size) * silent_blocks(size), 16);
        segments = scratch + threads * each_scratch;
        sums = segments + all_key_heads(size) * count * floats_of_segment;
        dq = sums + ScoreSums(size, score, count).floats();
        total = dq + dqs * dq_floats(size);
    }

  private:
    /// A segment, and for each of its heads of keys the queries that see it.
    static constexpr std::int64_t floats_of_segment = 16;
};

std::int64_t each_forward_scratch(const AttentionSize& size, const Score* score) {
    return forward_scratch(size.head_size) + (score ? forward_score_scratch(*score) : 0);
}

/// Checks that kernels can call the functions and operands of a score. `plain` and `masked`: the pass's
/// functions.
void check_score(ProblemCheck& check, const AttentionSize& size, const Score* score,
                 codegen::ScoreFunction plain, codegen::ScoreFunction masked) {
    if (!score) return;
    check.that(score->operand_count <= max_score_operands && score->gradient_count <= max_score_gradients,
               "a score function has too many operands or gradients");
    check.that(!score->table.blocks || masked,
               "a table of blocks needs a function for those of which some is seen");
    check.that(plain || (!score->slopes && !score->multiplies && !score->sums),
               "without a function there are no slopes, factors and gradients");
    for (std::int64_t i = 0; i < score->operand_count; ++i)
        check.that(score->operands[i].data != nullptr, "an operand of the scores is a null pointer");
    const std::int64_t blocks =
        ceil_div(size.queries, table_positions) * ceil_div(size.keys, table_positions);
    if (score->table.blocks) check.input("the table of blocks", score->table.blocks, blocks);
}

ProblemCheck checked_size(const char* kernel, const AttentionSize& size, const AttentionKernels& kernels) {
    ProblemCheck check(kernel);
    const std::string refused = refusal(kernels, size);
    check.that(refused.empty(), refused.c_str());
    check.size("sequences", size.sequences).size("heads", size.heads);
    check.size("queries", size.queries).size("keys", size.keys);
    check.size("head_size", size.head_size).size("group", size.group);
    check.that(size.heads % size.group == 0, "heads is not a multiple of group");
    check.that(!size.causal || size.keys >= size.queries, "a causal mask needs a key for every query");
    return check;
}

HeadExtents query_extents(const AttentionSize& size) {
    return {size.sequences, size.heads, size.queries, size.head_size};
}
HeadExtents key_extents(const AttentionSize& size) {
    return {size.sequences, size.heads / size.group, size.keys, size.head_size};
}

/// Rows must be apart, and each must be whole words of the unit from the next.
void check_place(ProblemCheck& check, const AttentionSize& size, const HeadExtents& extents,
                 const HeadStrides& strides) {
    check.that(rows_are_apart(extents, strides), "rows of a tensor overlap");
    if (size.dtype == DType::bf16 && size.head_size % 2 == 0)
        check.that((strides.sequence | strides.head | strides.position) % 2 == 0,
                   "strides of heads of an even size must be even");
}

void check_input(ProblemCheck& check, const char* name, const AttentionSize& size, const HeadExtents& extents,
                 const ConstHeads& x) {
    check_place(check, size, extents, x.strides);
    check.input(name, ConstView{x.data, size.dtype}, reach(extents, x.strides));
}

void check_output(ProblemCheck& check, const char* name, const AttentionSize& size,
                  const HeadExtents& extents, const Heads& x) {
    check_place(check, size, extents, x.strides);
    check.output(name, View{x.data, size.dtype}, reach(extents, x.strides));
}

/// An output, and whether it was counted as a part of an earlier one.
struct Gradient {
    const char* name;
    const Heads& to;
    HeadExtents extents;
    bool joined = false;
};

bool equal(const HeadExtents& a, const HeadExtents& b) {
    return a.sequences == b.sequences && a.heads == b.heads && a.positions == b.positions &&
           a.head_size == b.head_size;
}

/// Gradients that interleave, as in [B, T, 3, H, D], count as one output.
void check_gradients(ProblemCheck& check, const AttentionSize& size, std::span<Gradient> gradients) {
    const auto bytes = static_cast<std::int64_t>(size_of(size.dtype));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const Gradient& one = gradients[i];
        const HeadExtents& extents = one.extents;
        check_place(check, size, extents, one.to.strides);
        const auto* const start = static_cast<const char*>(one.to.data);
        std::int64_t before = 0, behind = reach(extents, one.to.strides) * bytes;  // of the start
        for (std::size_t j = 0; j < gradients.size(); ++j) {
            Gradient& other = gradients[j];
            if (j == i || !start || !other.to.data || !equal(other.extents, extents)) continue;
            const std::int64_t distance = static_cast<const char*>(other.to.data) - start;
            const bool reaches = std::abs(distance) < reach(extents, one.to.strides) * bytes;
            if (!reaches || !equal(other.to.strides, one.to.strides)) continue;
            check.that(tensors_are_apart(extents, one.to.strides, distance / bytes),
                       "gradients share elements");
            before = std::min(before, distance);
            behind = std::max(behind, distance + reach(extents, one.to.strides) * bytes);
            if (j > i) other.joined = true;
        }
        if (!one.joined) check.output(one.name, static_cast<char*>(one.to.data) + before, behind - before);
    }
}

/// All rows of a head.
void pack(const AttentionKernels& kernels, const AttentionSize& size, std::span<const PackedOperand> operands,
          std::int64_t head) {
    for (const PackedOperand& operand : operands) kernels.pack(size, operand, head, {0, operand.count});
}

/// All heads, where the kernels ask for it, in pieces of 128 rows, a few microseconds each.
void pack(const AttentionKernels& kernels, const AttentionSize& size, std::span<const PackedOperand> operands,
          ThreadPool& pool) {
    if (!kernels.pack) return;
    constexpr std::int64_t piece = 128;
    const std::int64_t count = operands[0].count, pieces = ceil_div(count, piece);
    pool.for_each_block(size.sequences * operands[0].heads * pieces, [&](std::int64_t item, int) {
        const std::int64_t first = item % pieces * piece;
        for (const PackedOperand& operand : operands)
            kernels.pack(size, operand, item / pieces, {first, std::min(count, first + piece)});
    });
}

/// Outputs in place of operands are refused too: blocks are read again after others were written.
void finish(ProblemCheck& check) {
    check.that(check.finish(Stores::streaming) == Stores::streaming, "an output lies in an operand's memory");
}

}  // namespace

const AttentionKernels& attention_kernels(Isa isa) {
    return of_level(isa, attention_kernels_generic, attention_kernels_avx2, attention_kernels_avx512)();
}

const AttentionKernels* attention_kernels(Bf16Unit unit) {
    switch (unit) {
        case Bf16Unit::none:
            return nullptr;
        case Bf16Unit::avx512_bf16:
            return &attention_kernels_avx512_bf16();
        case Bf16Unit::amx:
            return &attention_kernels_amx();
    }
    throw InternalError("attention_kernels: unknown unit");
}

std::string refusal(const AttentionKernels& kernels, const AttentionSize& size) {
    if (kernels.head_unit > 1 && size.dtype != DType::bf16)
        return fmt::format("it is written for bf16, got {}", name_of(size.dtype));
    if (size.head_size % kernels.head_unit == 0) return "";
    return fmt::format("it takes heads of a multiple of {}, got {}", kernels.head_unit, size.head_size);
}

std::int64_t attention_workspace(const AttentionKernels& kernels, const AttentionSize& size, int threads,
                                 const Score* score) {
    const std::int64_t copies = packs_by_heads(size, threads) ? threads : 1;
    const std::int64_t packed = packed_form(kernels, size, packed_key_heads(size, threads), size.keys);
    return (2 * packed * copies + threads * each_forward_scratch(size, score)) * float_bytes;
}

void attention(const AttentionKernels& kernels, const Attention& p, ThreadPool& pool) {
    const AttentionSize& s = p.size;
    ProblemCheck check = checked_size("attention", s, kernels);
    const HeadExtents queries = query_extents(s), keys = key_extents(s);
    check_input(check, "q", s, queries, p.q);
    check_input(check, "k", s, keys, p.k);
    check_input(check, "v", s, keys, p.v);
    if (p.score) check_score(check, s, p.score, p.score->forward, p.score->forward_masked);
    check_output(check, "o", s, queries, p.o);
    check.output("lse", p.lse, all_heads(s) * s.queries * float_bytes);
    finish(check.output("workspace", p.workspace, attention_workspace(kernels, s, pool.threads(), p.score)));
    const bool by_heads = kernels.pack && packs_by_heads(s, pool.threads());
    const std::int64_t heads = packed_key_heads(s, pool.threads());
    const std::int64_t packed = packed_form(kernels, s, heads, s.keys);
    float* const scratch = p.workspace + 2 * packed * (by_heads ? pool.threads() : 1);
    const std::int64_t each = each_forward_scratch(s, p.score);
    // A head's last queries come first, since they see the most.
    const std::int64_t blocks = ceil_div(s.queries, query_lanes);
    const auto run = [&](const Attention& one, std::int64_t head, std::int64_t block, int worker) {
        const std::int64_t first = (blocks - 1 - block) * query_lanes;
        kernels.forward(one, head, {first, std::min(s.queries, first + query_lanes)},
                        scratch + worker * each);
    };
    const auto operands = [&](float* to, std::int64_t first_head) {
        return std::array{PackedOperand{p.k, keys.heads, s.keys, to, nullptr, first_head},
                          PackedOperand{p.v, keys.heads, s.keys, nullptr, to + packed, first_head}};
    };
    if (by_heads) {
        pool.for_each_block(all_key_heads(s), [&](std::int64_t key_head, int worker) {
            float* const to = p.workspace + worker * 2 * packed;
            pack(kernels, s, operands(to, key_head), key_head);
            Attention mine = p;
            mine.packed = {to, key_head, 1};
            for (std::int64_t head = key_head * s.group; head < (key_head + 1) * s.group; ++head)
                for (std::int64_t block = 0; block < blocks; ++block) run(mine, head, block, worker);
        });
        return;
    }
    pack(kernels, s, operands(p.workspace, 0), pool);
    Attention one = p;
    one.packed = {p.workspace, 0, heads};
    // One head after another, so that a head's keys and values stay in L2.
    pool.for_each_block(all_heads(s) * blocks, [&](std::int64_t item, int worker) {
        run(one, item / blocks, item % blocks, worker);
    });
}

std::int64_t attention_grad_workspace(const AttentionKernels& kernels, const AttentionSize& size, int threads,
                                      const Score* score) {
    return GradWorkspace(kernels, size, score, threads).total * float_bytes;
}

namespace {

/// q and do, both ways, of heads from `first_head` on.
std::array<PackedOperand, 2> packed_operands(const AttentionGrad& p, const GradWorkspace& at, float* to,
                                             std::int64_t first_head) {
    const AttentionSize& s = p.size;
    float* const of_do = to + 2 * at.packed;
    return {PackedOperand{p.q, s.heads, s.queries, to, to + at.packed, first_head},
            PackedOperand{p.d_o, s.heads, s.queries, of_do, of_do + at.packed, first_head}};
}

/// The gradient of attention once its operands are checked.
class GradRun {
  public:
    GradRun(const AttentionKernels& kernels, const AttentionGrad& p, ThreadPool& pool)
        : kernels_(kernels),
          p_(p),
          s_(p.size),
          pool_(pool),
          at_(kernels, s_, p.score, pool.threads()),
          order_(s_, p.score),
          count_(segments_of(s_, p.score)),
          sums_(s_, p.score, count_) {}

    void run() {
        cut();
        sums_.begin(pool_);
        // The first keys are seen by the most queries: they come first, for all heads, so that the last items
        // are short.
        const std::int64_t pieces = order_.pieces(s_);
        pool_.for_each_block(pieces * count_, [&](std::int64_t item, int worker) {
            order_.for_each_head(s_, item % pieces, [&](std::int64_t key_head) {
                differentiate(key_head, item / pieces, worker);
            });
        });
        sums_.finish(p_.workspace + at_.sums);
        if (count_ > 1) sum_dq();
    }

  private:
    Segment* segments_of_head(std::int64_t key_head) const {
        return reinterpret_cast<Segment*>(p_.workspace + at_.segments) + key_head * count_;
    }
    /// Ranges by part, as sums of dq need them. They lie behind the segments of all heads.
    Range* ranges_of_head(std::int64_t key_head) const {
        return reinterpret_cast<Range*>(segments_of_head(all_key_heads(s_))) + key_head * count_;
    }

    void cut() {
        pool_.for_each_block(all_key_heads(s_), [&](std::int64_t key_head, int) {
            Segment* const segments = segments_of_head(key_head);
            cut_segments(s_, p_.score ? p_.score->table : BlockTable{}, key_head, segment_keys(s_, p_.score),
                         {segments, static_cast<std::size_t>(count_)});
            for (std::int64_t i = 0; i < count_; ++i) ranges_of_head(key_head)[i] = segments[i].queries;
        });
    }

    /// Packs the operands of the heads that share keys, and takes their sums of do * o.
    PackedHeads prepare_heads(std::int64_t first, int worker) {
        float* const to = p_.workspace + worker * 4 * at_.packed;
        for (std::int64_t head = first; head < first + s_.group; ++head) {
            pack(kernels_, s_, packed_operands(p_, at_, to, first), head);
            kernels_.delta(p_, head, {0, s_.queries}, p_.workspace + at_.delta);
        }
        return {to, first, s_.group};
    }

    void differentiate(std::int64_t key_head, std::int64_t index, int worker) {
        const std::int64_t head = key_head * s_.group;
        const Segment& segment = segments_of_head(key_head)[index];
        // The parts of a head's dq lie one after another.
        const std::int64_t array = count_ == 1 ? worker * s_.group : head * count_ + index;
        ScoreGradient gradients[max_score_gradients];
        sums_.of_item(p_.workspace + at_.sums, key_head, index, gradients);
        const QueryGradients to{.first = p_.workspace + at_.dq + array * dq_floats(s_),
                                .stride = count_ * dq_floats(s_),
                                .queries = segment.queries,
                                .score = gradients};
        AttentionGrad one = p_;
        one.packed = at_.by_heads ? prepare_heads(head, worker) : PackedHeads{p_.workspace, 0, all_heads(s_)};
        kernels_.backward(one, key_head, segment.keys, p_.workspace + at_.delta, to,
                          p_.workspace + at_.scratch + worker * at_.each_scratch);
        for (std::int64_t i = 0; count_ == 1 && i < s_.group; ++i)
            kernels_.sum_dq(p_, head + i, {0, s_.queries},
                            {.first = to.first + i * to.stride, .seen = ranges(key_head)});
    }

    void sum_dq() {
        const std::int64_t blocks = ceil_div(s_.queries, query_rows);
        pool_.for_each_block(all_heads(s_) * blocks, [&](std::int64_t item, int) {
            const std::int64_t head = item / blocks, first = item % blocks * query_rows;
            kernels_.sum_dq(p_, head, {first, std::min(s_.queries, first + query_rows)},
                            {.first = p_.workspace + at_.dq + head * count_ * dq_floats(s_),
                             .count = count_,
                             .seen = ranges(head / s_.group)});
        });
    }

    /// Null where every segment has every query.
    const Range* ranges(std::int64_t key_head) const {
        return p_.score && p_.score->table.blocks ? ranges_of_head(key_head) : nullptr;
    }

    const AttentionKernels& kernels_;
    const AttentionGrad& p_;
    const AttentionSize& s_;
    ThreadPool& pool_;
    GradWorkspace at_;
    ScoreOrder order_;
    std::int64_t count_;
    ScoreSums sums_;
};

}  // namespace

void attention_grad(const AttentionKernels& kernels, const AttentionGrad& p, ThreadPool& pool) {
    const AttentionSize& s = p.size;
    ProblemCheck check = checked_size("attention_grad", s, kernels);
    const HeadExtents of_queries = query_extents(s), of_keys = key_extents(s);
    check_input(check, "do", s, of_queries, p.d_o);
    check_input(check, "q", s, of_queries, p.q);
    check_input(check, "k", s, of_keys, p.k);
    check_input(check, "v", s, of_keys, p.v);
    check_input(check, "o", s, of_queries, p.o);
    check.input("lse", p.lse, all_heads(s) * s.queries * float_bytes);
    if (p.d_lse) check.input("the gradient of lse", p.d_lse, all_heads(s) * s.queries * float_bytes);
    if (p.score) check_score(check, s, p.score, p.score->backward, p.score->backward_masked);
    for (std::int64_t i = 0; p.score && p.score->sums && i < p.score->gradient_count; ++i)
        check.output("a gradient of the scores", p.score->gradients[i].data,
                     p.score->gradients[i].count * float_bytes);
    Gradient gradients[] = {{"dq", p.dq, of_queries}, {"dk", p.dk, of_keys}, {"dv", p.dv, of_keys}};
    check_gradients(check, s, gradients);
    finish(check.output("workspace", p.workspace,
                        attention_grad_workspace(kernels, s, pool.threads(), p.score)));

    const GradWorkspace at(kernels, s, p.score, pool.threads());
    float* const delta = p.workspace + at.delta;
    if (!at.by_heads) {
        pack(kernels, s, packed_operands(p, at, p.workspace, 0), pool);
        const std::int64_t pieces = ceil_div(s.queries, delta_rows);
        pool.for_each_block(all_heads(s) * pieces, [&](std::int64_t item, int) {
            const std::int64_t first = item % pieces * delta_rows;
            kernels.delta(p, item / pieces, {first, std::min(s.queries, first + delta_rows)}, delta);
        });
    }
    GradRun(kernels, p, pool).run();
}

}  // namespace mantissa::on_cpu
