// Attention on operands, results and gradients that lie in any order of axes: the same bits as on dense ones,
// at every level, and nothing written beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/graph/attention_layout.h"
#include "tests/device/attention_oracle.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

/// The tensors that there are and the order of their axes.
struct Order {
    std::string operands;  ///< of q, k and v; with p they share one tensor
    std::string result;

    bool shared() const { return operands.find('p') != std::string::npos; }
};

/// One tensor, or several parts of one, filled and read as [B, H, T, D].
class Stored {
  public:
    Stored(const Setting& setting, DType dtype, std::string axes, const Shape& heads, std::int64_t parts)
        : axes_(std::move(axes)),
          heads_(heads),
          shape_(stored_shape(axes_, heads, parts)),
          memory_(setting, dtype, shape_.elements()),
          values_(static_cast<std::size_t>(shape_.elements())) {}

    void put(std::int64_t part, const Numbers& dense) {
        std::size_t i = 0;
        for_each_element(part, [&](std::size_t at) { values_[at] = dense[i++]; });
        memory_.assign(values_);
    }
    Numbers get(std::int64_t part) const {
        const Numbers values = memory_.values();
        Numbers dense;
        for_each_element(part, [&](std::size_t at) { dense.push_back(values[at]); });
        return dense;
    }
    ConstHeads in(std::int64_t part) const { return out<ConstHeads>(part); }
    template <class T = Heads>
    T out(std::int64_t part) const {
        const AttentionStrides s = strides_of(axes_, shape_, part);
        const auto start = s.start * static_cast<std::int64_t>(size_of(memory_.type()));
        return {memory_.as<std::byte>() + start, {s.sequence, s.head, s.position}};
    }

  private:
    template <class F>
    void for_each_element(std::int64_t part, F f) const {
        const AttentionStrides s = strides_of(axes_, shape_, part);
        for (std::int64_t b = 0; b < heads_[0]; ++b)
            for (std::int64_t h = 0; h < heads_[1]; ++h)
                for (std::int64_t t = 0; t < heads_[2]; ++t)
                    for (std::int64_t d = 0; d < heads_[3]; ++d)
                        f(static_cast<std::size_t>(s.start + b * s.sequence + h * s.head + t * s.position +
                                                   d));
    }

    std::string axes_;
    Shape heads_, shape_;
    Guarded memory_;
    Numbers values_;
};

/// Queries, keys and values, or their gradients.
class Three {
  public:
    Three(const Setting& setting, const AttentionSize& s, const Order& order) : shared_(order.shared()) {
        const Shape by_query{s.sequences, s.heads, s.queries, s.head_size};
        const Shape by_key{s.sequences, s.heads / s.group, s.keys, s.head_size};
        if (shared_) {
            tensors_.emplace_back(setting, s.dtype, order.operands, by_query, 3);
        } else {
            for (const Shape& shape : {by_query, by_key, by_key})
                tensors_.emplace_back(setting, s.dtype, order.operands, shape, 1);
        }
    }
    Stored& tensor(std::size_t i) { return tensors_[shared_ ? 0 : i]; }
    std::int64_t part(std::size_t i) const { return shared_ ? static_cast<std::int64_t>(i) : 0; }
    ConstHeads in(std::size_t i) { return tensor(i).in(part(i)); }
    Heads out(std::size_t i) { return tensor(i).out(part(i)); }
    Numbers get(std::size_t i) { return tensor(i).get(part(i)); }

  private:
    bool shared_;
    std::deque<Stored> tensors_;  // a deque: they do not move
};

struct AttentionResults {
    Numbers o, lse, dq, dk, dv;
    friend bool operator==(const AttentionResults&, const AttentionResults&) = default;
};

AttentionResults run_from_places(const Setting& setting, const AttentionKernels& kernels,
                                 const AttentionSize& s, const AttentionOperands& x, const Order& order) {
    Three operands(setting, s, order), gradients(setting, s, order);
    operands.tensor(0).put(operands.part(0), x.q);
    operands.tensor(1).put(operands.part(1), x.k);
    operands.tensor(2).put(operands.part(2), x.v);
    const Shape heads{s.sequences, s.heads, s.queries, s.head_size};
    Stored o(setting, s.dtype, order.result, heads, 1), d_o(setting, s.dtype, order.result, heads, 1);
    d_o.put(0, x.d_o);
    const Guarded lse(setting, DType::f32, s.sequences * s.heads * s.queries);
    const int threads = setting.pool.threads();
    const Guarded workspace(
        setting, DType::f32,
        std::max(attention_workspace(kernels, s, threads), attention_grad_workspace(kernels, s, threads)) /
            4);
    attention(kernels,
              {.size = s,
               .q = operands.in(0),
               .k = operands.in(1),
               .v = operands.in(2),
               .o = o.out(0),
               .lse = lse.f32(),
               .workspace = workspace.f32()},
              setting.pool);
    attention_grad(kernels,
                   {.size = s,
                    .d_o = d_o.in(0),
                    .q = operands.in(0),
                    .k = operands.in(1),
                    .v = operands.in(2),
                    .o = o.in(0),
                    .lse = lse.f32(),
                    .dq = gradients.out(0),
                    .dk = gradients.out(1),
                    .dv = gradients.out(2),
                    .workspace = workspace.f32()},
                   setting.pool);
    return {o.get(0), lse.values(), gradients.get(0), gradients.get(1), gradients.get(2)};
}

std::vector<const AttentionKernels*> all_levels() {
    std::vector<const AttentionKernels*> levels;
    for (int level = 0; level <= static_cast<int>(std::min(best_isa(), Isa::avx512)); ++level)
        levels.push_back(&attention_kernels(static_cast<Isa>(level)));
    if (has_bf16_dot()) levels.push_back(attention_kernels(Bf16Unit::avx512_bf16));
    if (best_isa() >= Isa::amx) levels.push_back(attention_kernels(Bf16Unit::amx));
    return levels;
}

TEST(AttentionPlaces, AnyOrderOfAxesGivesTheBitsOfDenseOperands) {
    static ThreadPool one(1), three(3);
    for (unsigned seed = 0; seed < 24; ++seed) {
        std::mt19937 random(seed);
        const auto up_to = [&](int most) {
            return std::uniform_int_distribution<std::int64_t>(1, most)(random);
        };
        const bool shared = seed % 2 == 0, causal = seed % 3 != 0;
        const std::int64_t queries = up_to(90), keys = shared ? queries : queries + up_to(70);
        const std::int64_t head_size = seed % 4 < 2 ? 32 * up_to(2) : 2 * up_to(20);
        const std::int64_t group = shared ? 1 : up_to(3);
        const AttentionSize s{.sequences = up_to(3),
                              .heads = group * up_to(3),
                              .queries = queries,
                              .keys = keys,
                              .head_size = head_size,
                              .causal = causal,
                              .scale = 1 / std::sqrt(static_cast<float>(head_size)),
                              .dtype = seed % 6 == 5   ? DType::f16
                                       : seed % 3 == 0 ? DType::f32
                                                       : DType::bf16,
                              .group = group};
        Order order{shared ? "bhpt" : "bht", "bht"};
        std::shuffle(order.operands.begin(), order.operands.end(), random);
        std::shuffle(order.result.begin(), order.result.end(), random);
        order.operands += 'd', order.result += 'd';
        SCOPED_TRACE("seed " + std::to_string(seed) + ": " + order.operands + " to " + order.result);
        const std::int64_t q = s.sequences * s.heads * queries * head_size, k = q / group / queries * keys;
        const AttentionOperands x{normal_values(q, s.dtype, 1, 1), normal_values(k, s.dtype, 1, 2),
                                  normal_values(k, s.dtype, 1, 3), normal_values(q, s.dtype, 1, 4)};
        for (const AttentionKernels* kernels : all_levels()) {
            if (!refusal(*kernels, s).empty()) continue;
            SCOPED_TRACE(kernels->name);
            const Setting at_start{row_kernels(Isa::generic), three, Placement::starts_at_guard,
                                   Stores::plain};
            const Setting at_end{row_kernels(Isa::generic), one, Placement::ends_at_guard, Stores::plain};
            const AttentionResults dense = run_from_places(at_start, *kernels, s, x, {"bhtd", "bhtd"});
            EXPECT_TRUE(run_from_places(at_start, *kernels, s, x, order) == dense);
            EXPECT_TRUE(run_from_places(at_end, *kernels, s, x, order) == dense);
        }
        if (HasFailure()) return;
    }
}

Numbers negated(Numbers x) {
    for (double& value : x) value = -value;
    return x;
}

TEST(AttentionPlaces, ANegativeScaleIsAPositiveOneOfNegatedQueries) {
    static ThreadPool pool(2);
    const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard, Stores::plain};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        AttentionSize s{
            .heads = 2, .queries = 70, .keys = 150, .head_size = 32, .causal = true, .scale = 0.25f};
        s.dtype = dtype;
        const std::int64_t q = 2 * 70 * 32, k = 2 * 150 * 32;
        AttentionOperands x{normal_values(q, dtype, 1, 1), normal_values(k, dtype, 1, 2),
                            normal_values(k, dtype, 1, 3), normal_values(q, dtype, 1, 4)};
        for (const AttentionKernels* kernels : all_levels()) {
            if (!refusal(*kernels, s).empty()) continue;
            SCOPED_TRACE(kernels->name);
            const Order order{"bthd", "bhtd"};
            const AttentionResults positive = run_from_places(setting, *kernels, s, x, order);
            AttentionOperands turned = x;
            turned.q = negated(x.q);
            AttentionSize negative = s;
            negative.scale = -s.scale;
            AttentionResults got = run_from_places(setting, *kernels, negative, turned, order);
            got.dq = negated(got.dq);
            EXPECT_TRUE(got == positive);
        }
    }
}

TEST(AttentionPlaces, RowsAndTensorsThatMeetAreFound) {
    const HeadExtents e{2, 3, 5, 4};  // B, H, T, D
    EXPECT_TRUE(rows_are_apart(e, dense_strides(3, 5, 4)));
    const HeadStrides interleaved{.sequence = 5 * 36, .head = 4, .position = 36};  // [B, T, 3, H, D]
    EXPECT_TRUE(rows_are_apart(e, interleaved));
    EXPECT_EQ(reach(e, interleaved), 5 * 36 + 4 * 36 + 2 * 4 + 4);
    EXPECT_FALSE(rows_are_apart(e, {.sequence = 60, .head = 4, .position = 8}));
    EXPECT_FALSE(rows_are_apart({1, 1, 5, 4}, {.sequence = 0, .head = 0, .position = 3}));
    EXPECT_TRUE(rows_are_apart({1, 1, 5, 4}, {.sequence = 0, .head = 0, .position = 4}));
    for (const std::int64_t distance : {12, 24, -12, -24, 2 * 5 * 36})
        EXPECT_TRUE(tensors_are_apart(e, interleaved, distance)) << distance;
    for (const std::int64_t distance : {0, 4, 8, 9, 11, -11, 36, 180, 180 - 36, 180 - 25, 36 - 10})
        EXPECT_FALSE(tensors_are_apart(e, interleaved, distance)) << distance;
    // By brute force on small strides.
    for (const HeadStrides& s : {HeadStrides{40, 4, 8}, HeadStrides{8, 50, 16}, HeadStrides{5, 60, 10}})
        for (std::int64_t distance = -130; distance <= 130; ++distance) {
            const HeadExtents small{2, 2, 3, 3};
            ASSERT_TRUE(rows_are_apart(small, s));
            bool meet = false;
            for (int i = 0; i < 12; ++i)
                for (int j = 0; j < 12; ++j) {
                    const auto row = [&](int r) {
                        return r / 6 * s.sequence + r / 3 % 2 * s.head + r % 3 * s.position;
                    };
                    meet = meet || std::abs(row(i) - row(j) - distance) < 3;
                }
            EXPECT_EQ(tensors_are_apart(small, s, distance), !meet) << distance;
        }
}

TEST(AttentionPlaces, GradientsThatShareElementsAreRefused) {
    ThreadPool pool(1);
    const Setting setting{row_kernels(Isa::generic), pool, Placement::starts_at_guard, Stores::plain};
    const AttentionSize s{.sequences = 2, .heads = 3, .queries = 5, .keys = 5, .head_size = 4};
    const AttentionKernels& kernels = attention_kernels(Isa::generic);
    const Guarded qkv(setting, DType::f32, 2 * 5 * 36), gradients(setting, DType::f32, 2 * 5 * 36);
    const Guarded o(setting, DType::f32, 120), d_o(setting, DType::f32, 120), lse(setting, DType::f32, 30);
    const Guarded workspace(setting, DType::f32, attention_grad_workspace(kernels, s, 1) / 4);
    for (const Guarded* x : {&qkv, &o, &d_o, &lse})
        x->as<float>()[0] = 0, std::fill_n(x->as<float>(), x->count(), 0.5f);
    const HeadStrides at{.sequence = 5 * 36, .head = 4, .position = 36};
    const HeadStrides dense = dense_strides(3, 5, 4);
    const auto differentiate = [&](std::int64_t dk, std::int64_t dv) {
        attention_grad(kernels,
                       {.size = s,
                        .d_o = {d_o.f32(), dense},
                        .q = {qkv.f32(), at},
                        .k = {qkv.f32() + 12, at},
                        .v = {qkv.f32() + 24, at},
                        .o = {o.f32(), dense},
                        .lse = lse.f32(),
                        .dq = {gradients.f32(), at},
                        .dk = {gradients.f32() + dk, at},
                        .dv = {gradients.f32() + dv, at},
                        .workspace = workspace.f32()},
                       pool);
    };
    EXPECT_NO_THROW(differentiate(12, 24));
    EXPECT_NO_THROW(differentiate(24, 12));
    EXPECT_THROW(differentiate(12, 16), InternalError);
    EXPECT_THROW(differentiate(0, 24), InternalError);
    EXPECT_THROW(differentiate(8, 24), InternalError);
}

}  // namespace
}  // namespace mantissa::on_cpu
