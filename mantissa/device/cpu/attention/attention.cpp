// Drivers of attention and its gradient: checks, and how the work is cut, from shapes alone.
#include "mantissa/device/cpu/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::cpu {

namespace {

constexpr std::int64_t float_bytes = sizeof(float);

/// The backward pass cuts the keys of a head into segments where there are few heads, so that threads have
/// something to share; each has a dq of its own, which are then added. Sixteen pieces of work and no more
/// than eight segments: then the causal triangle, largest segment first, leaves two threads within a tenth of
/// one another, and the dq of a segment stays a small multiple of q.
constexpr std::int64_t least_pieces = 16;
constexpr std::int64_t most_segments = 8;

std::int64_t segment_keys(const AttentionSize& size) {
    const std::int64_t wanted =
        std::clamp<std::int64_t>(blocks_of(least_pieces, size.heads), 1, most_segments);
    return blocks_of(blocks_of(size.keys, wanted), key_lanes) * key_lanes;
}

std::int64_t segments_of(const AttentionSize& size) { return blocks_of(size.keys, segment_keys(size)); }

std::int64_t dq_floats(const AttentionSize& size) { return size.queries * padded_head(size.head_size); }

/// Floats of an operand of all heads, `rows` each, where the kernels transpose it; else 0.
std::int64_t transposed_floats(const AttentionKernels& kernels, const AttentionSize& size,
                               std::int64_t rows) {
    return kernels.transpose ? size.heads * size.head_size * transposed_row(rows) / 2 : 0;
}

/// Where things lie in the workspace of the gradient, in floats; q and do, transposed, come first.
struct GradWorkspace {
    std::int64_t transposed_do, delta, scratch, dq, total;

    GradWorkspace(const AttentionKernels& kernels, const AttentionSize& size, int threads) {
        const std::int64_t segments = segments_of(size);
        const std::int64_t dqs = segments == 1 ? threads : size.heads * segments;
        transposed_do = transposed_floats(kernels, size, size.queries);
        delta = 2 * transposed_do;
        scratch = delta + (size.heads * size.queries + 15) / 16 * 16;
        dq = scratch + threads * backward_scratch(size.head_size);
        total = dq + dqs * dq_floats(size);
    }
};

ProblemCheck checked_size(const char* kernel, const AttentionSize& size, const AttentionKernels& kernels) {
    ProblemCheck check(kernel);
    const std::string refused = refusal(kernels, size);
    check.that(refused.empty(), refused.c_str());
    check.size("heads", size.heads).size("queries", size.queries).size("keys", size.keys);
    check.size("head_size", size.head_size);
    check.that(!size.causal || size.keys >= size.queries, "a causal mask needs a key for every query");
    return check;
}

/// Into `to`, where the kernels ask for it: pieces of 128 rows, a few microseconds each.
void transpose(const AttentionKernels& kernels, const AttentionSize& size, std::int64_t rows, const void* x,
               float* to, ThreadPool& pool) {
    if (!kernels.transpose) return;
    constexpr std::int64_t piece = 128;
    const std::int64_t pieces = blocks_of(rows, piece), D = size.head_size;
    pool.for_each_block(size.heads * pieces, [&](std::int64_t item, int) {
        const std::int64_t head = item / pieces, first = item % pieces * piece;
        kernels.transpose(static_cast<const std::uint16_t*>(x) + head * rows * D, rows, D,
                          {first, std::min(rows, first + piece)}, to + head * D * transposed_row(rows) / 2);
    });
}

/// Outputs in place of operands are refused too: blocks are read again after others were written.
void finish(ProblemCheck& check) {
    check.that(check.finish(Stores::streaming) == Stores::streaming, "an output lies in an operand's memory");
}

}  // namespace

const AttentionKernels& attention_kernels(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return attention_kernels_generic();
        case Isa::avx2:
            return attention_kernels_avx2();
        case Isa::avx512:
        case Isa::amx:
            return attention_kernels_avx512();
    }
    throw InternalError("attention_kernels: unknown instruction set");
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

std::int64_t attention_workspace(const AttentionKernels& kernels, const AttentionSize& size, int threads) {
    return (transposed_floats(kernels, size, size.keys) + threads * forward_scratch(size.head_size)) *
           float_bytes;
}

void attention(const AttentionKernels& kernels, const Attention& p, ThreadPool& pool) {
    const AttentionSize& s = p.size;
    const std::int64_t rows = s.heads * s.queries;
    const std::int64_t count = rows * s.head_size, keys = s.heads * s.keys * s.head_size;
    ProblemCheck check = checked_size("attention", s, kernels);
    check.input("q", ConstView{p.q, s.dtype}, count).input("k", ConstView{p.k, s.dtype}, keys);
    check.input("v", ConstView{p.v, s.dtype}, keys).output("o", View{p.o, s.dtype}, count);
    check.output("lse", p.lse, rows * float_bytes);
    finish(check.output("workspace", p.workspace, attention_workspace(kernels, s, pool.threads())));
    transpose(kernels, s, s.keys, p.v, p.workspace, pool);
    float* const scratch = p.workspace + transposed_floats(kernels, s, s.keys);
    // One head after another, so that its keys and values stay in L2; of each the last queries first, which
    // see the most.
    const std::int64_t blocks = blocks_of(s.queries, query_lanes);
    pool.for_each_block(s.heads * blocks, [&](std::int64_t item, int worker) {
        const std::int64_t first = (blocks - 1 - item % blocks) * query_lanes;
        kernels.forward(p, item / blocks, {first, std::min(s.queries, first + query_lanes)},
                        scratch + worker * forward_scratch(s.head_size));
    });
}

std::int64_t attention_grad_workspace(const AttentionKernels& kernels, const AttentionSize& size,
                                      int threads) {
    return GradWorkspace(kernels, size, threads).total * float_bytes;
}

void attention_grad(const AttentionKernels& kernels, const AttentionGrad& p, ThreadPool& pool) {
    const AttentionSize& s = p.size;
    const std::int64_t rows = s.heads * s.queries;
    const std::int64_t count = rows * s.head_size, keys = s.heads * s.keys * s.head_size;
    ProblemCheck check = checked_size("attention_grad", s, kernels);
    check.input("do", ConstView{p.d_o, s.dtype}, count).input("q", ConstView{p.q, s.dtype}, count);
    check.input("k", ConstView{p.k, s.dtype}, keys).input("v", ConstView{p.v, s.dtype}, keys);
    check.input("o", ConstView{p.o, s.dtype}, count).input("lse", p.lse, rows * float_bytes);
    check.output("dq", View{p.dq, s.dtype}, count).output("dk", View{p.dk, s.dtype}, keys);
    check.output("dv", View{p.dv, s.dtype}, keys);
    finish(check.output("workspace", p.workspace, attention_grad_workspace(kernels, s, pool.threads())));

    const GradWorkspace at(kernels, s, pool.threads());
    float* const delta = p.workspace + at.delta;
    transpose(kernels, s, s.queries, p.q, p.workspace, pool);
    transpose(kernels, s, s.queries, p.d_o, p.workspace + at.transposed_do, pool);
    for_each_range(pool, rows, rows_per_block(8 * s.head_size),
                   [&](Range range, std::int64_t) { kernels.delta(p, range, delta); });
    const std::int64_t segments = segments_of(s), each = segment_keys(s);
    pool.for_each_block(s.heads * segments, [&](std::int64_t item, int worker) {
        // The first keys are seen by the most queries.
        const std::int64_t head = item / segments, first = item % segments * each;
        float* const dq = p.workspace + at.dq + (segments == 1 ? worker : item) * dq_floats(s);
        kernels.backward(p, head, {first, std::min(s.keys, first + each)}, delta, dq,
                         p.workspace + at.scratch + worker * backward_scratch(s.head_size));
        if (segments == 1) kernels.sum_dq(p, head, {0, s.queries}, dq, 1);
    });
    if (segments == 1) return;
    const std::int64_t blocks = blocks_of(s.queries, query_rows);
    pool.for_each_block(s.heads * blocks, [&](std::int64_t item, int) {
        const std::int64_t head = item / blocks, first = item % blocks * query_rows;
        kernels.sum_dq(p, head, {first, std::min(s.queries, first + query_rows)},
                       p.workspace + at.dq + head * segments * dq_floats(s), segments);
    });
}

}  // namespace mantissa::cpu
