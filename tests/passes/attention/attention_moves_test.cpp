// Attention made by random algebraic moves that change nothing, and by one that does: the first is always
// found, with the reference's values and gradients, the second never taken, and never without a reason.
#include <gtest/gtest.h>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/match_attention.h"
#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

/// Draws spellings.
class Moves {
  public:
    explicit Moves(std::uint32_t seed) : random_{.seed = 24, .step = 1, .operation = seed} {}
    /// Below `choices`.
    int draw(int choices) {
        return static_cast<int>(random_.bits(next_++) % static_cast<std::uint64_t>(choices));
    }
    bool coin() { return draw(2) == 1; }

  private:
    RandomStream random_;
    std::uint64_t next_ = 0;
};

/// The one wrong move, or none.
enum class Wrong {
    none,
    other_sum,
    sum_over_queries,
    sum_of_all_pairs,
    sum_without_gradient,
    not_normalised,
    squared_sum,
    gate_of_keys,
    scores_elsewhere,
    weights_elsewhere,
    second_product,
    softmax_of_softmax,
    weights_times_scores,
    sum_squared_weights,
    maximum_of_other,
    count
};

class AttentionByMoves {
  public:
    AttentionByMoves(std::uint32_t seed, Wrong wrong) : moves_(seed), wrong_(wrong) {
        const int form = moves_.draw(8);
        // A sink has no such weights.
        const bool has_no_sink = wrong == Wrong::gate_of_keys || wrong == Wrong::weights_elsewhere ||
                                 wrong == Wrong::weights_times_scores;
        sink_ = form == 7 && !has_no_sink;
        causal_ = moves_.coin();
        Tensor s = product();
        if (form == 1) s = capped(s);
        if (form == 2) s = added(s, bias());
        if (form == 3)
            s = s * (moves_.coin() ? g_.input("scale", {}) : reshape(g_.input("scale", {H}), {H, 1, 1}));
        if (form == 4) s = added(s, table());
        s = shifted(s);
        if (causal_) s = hidden(s, g_.visible(), g_.queries() + 1.0);
        if (form == 5) s = hidden(s, less(g_.queries(), g_.keys() + 3.0), {});
        if (form == 6) {
            const Tensor d = g_.ids("documents", {B, T}, 2);
            s = hidden(s, equal(reshape(d, {B, 1, T, 1}), reshape(d, {B, 1, 1, T})), {});
        }
        is_hidden_ = true;
        s = moves_.coin() ? shifted(s) : s;
        g_.graph.add_result("y", result(s).value());
    }
    Given& given() { return g_; }

  private:
    Tensor number(double value) { return g_.number(value); }
    Tensor added(Tensor a, Tensor b) {
        switch (moves_.draw(3)) {
            case 0:
                return a + b;
            case 1:
                return b + a;
            default:
                return a - (-b);
        }
    }

    Tensor product() {
        const double scale = 0.5;
        Tensor q = g_.q(), k = g_.k();
        const int where = moves_.draw(4);
        if (where == 0) q = q * scale;
        if (where == 1) k = k / (1 / scale);
        const int order = moves_.draw(3);
        const bool flat = moves_.coin();
        if (flat) q = reshape(q, {B * H, T, D}), k = reshape(k, {B * H, T, D});
        Tensor s = order == 0   ? matmul(q, k, {.transpose_b = true})
                   : order == 1 ? matmul(q, flat ? transpose(k, {0, 2, 1}) : transpose(k, {0, 1, 3, 2}))
                   : flat ? transpose(matmul(k, q, {.transpose_b = true}), {0, 2, 1})
                                : transpose(matmul(k, q, {.transpose_b = true}), {0, 1, 3, 2});
        if (flat) s = reshape(s, {B, H, T, T});
        if (where == 2) s = s * scale;
        if (where == 3) s = s / number(1 / scale);
        if (moves_.draw(4) == 0) s = -(-s);
        if (wrong_ == Wrong::second_product) s = s + g_.scores(g_.head_major("p"), g_.head_major("r"));
        if (wrong_ == Wrong::scores_elsewhere) g_.graph.add_result("scores", s.value());
        if (wrong_ == Wrong::softmax_of_softmax) s = softmax(s);
        return s;
    }

    Tensor capped(Tensor s) {
        switch (moves_.draw(3)) {
            case 0:
                return tanh(s / 1.5) * 1.5;
            case 1:
                return number(1.5) * tanh(s * (1 / 1.5));
            default:
                return sigmoid(s * (2 / 1.5)) * 3.0 - 1.5;
        }
    }

    Tensor bias() {
        const Tensor slope = reshape(g_.input("slopes", {H}), {H, 1, 1});
        switch (moves_.draw(4)) {
            case 0:
                return slope * cast(g_.keys() - g_.queries(), DType::f32);
            case 1:
                return cast(g_.keys({1, T}), DType::f32) * slope;
            case 2:
                return -(slope * cast(g_.queries() - g_.keys(), DType::f32));
            default:
                return reshape(slope * cast(g_.keys(), DType::f32), {1, H, T, T});
        }
    }

    Tensor table() {
        const Tensor ids = g_.keys() - g_.queries() + static_cast<double>(T - 1);
        const Tensor rows = embedding(g_.input("table", {2 * T - 1, H}), ids);
        return moves_.coin() ? transpose(rows, {2, 0, 1})
                             : reshape(transpose(reshape(rows, {1, T, T, H}), {0, 3, 1, 2}), {H, T, T});
    }

    /// Something that is the same for all keys is added or taken away.
    Tensor shifted(Tensor s) {
        const int which = moves_.draw(6);
        // Beside a sink it would not cancel; of scores that are hidden there is no mean.
        if ((sink_ && (which == 1 || which == 3)) || (is_hidden_ && which == 3)) return s;
        switch (which) {
            case 0:
                return s + 0.75;
            case 1:
                return s - stop_gradient(max(s, {-1}, KeepAxes::yes));
            case 2:
                return (s + cast(g_.queries({T, 1}), DType::f32)) - 1.0;
            case 3:
                return s - sum(s, {-1}, KeepAxes::yes) / static_cast<double>(T);
            case 4:
                return number(0.5) + (s - reshape(sum(g_.v(), {-1}), {B, H, T, 1}));
            default:
                return s;
        }
    }

    /// `before`: the first position that is hidden, if there is one.
    Tensor hidden(Tensor s, Tensor sees, Tensor before) {
        switch (moves_.draw(before ? 6 : 4)) {
            case 0:
                return select(sees, s, number(-infinity));
            case 1:
                return s + select(sees, number(0), number(-infinity));
            case 2:
                return select(equal(cast(sees, DType::f32), number(0)), number(-1e9), s);
            case 3:
                return minimum(s, select(sees, number(infinity), number(-infinity)));
            case 4:
                return select(less(g_.keys(), before), s, number(-infinity));
            default:
                return select(less_equal(before, g_.keys()), number(-1e30), s);
        }
    }

    Tensor keys_of(Tensor e) { return sum(e, {-1}, KeepAxes::yes); }

    Tensor exponentials(Tensor s) {
        switch (moves_.draw(3)) {
            case 0:
                return exp(s);
            case 1:
                return exp(s - stop_gradient(max(s, {-1}, KeepAxes::yes)));
            default:
                return exp((s * (1 / std::log(2.0)) - 1.0) * std::log(2.0));
        }
    }

    Tensor total(Tensor s, Tensor e) {
        switch (wrong_) {
            case Wrong::other_sum:
                return keys_of(exp(s * 1.0625));
            case Wrong::sum_over_queries:
                return sum(e, {-2}, KeepAxes::yes);
            case Wrong::sum_of_all_pairs:
                return keys_of(e * (g_.triangle(T) + 0.5));
            case Wrong::sum_without_gradient:
                return stop_gradient(keys_of(e));
            case Wrong::squared_sum:
                return keys_of(e) * keys_of(e);
            case Wrong::sum_squared_weights:
                return keys_of(e * e);
            case Wrong::maximum_of_other:
                return keys_of(exp(s - max(s * 2.0, {-1}, KeepAxes::yes)));
            default:
                return keys_of(e);
        }
    }

    Tensor result(Tensor s) {
        const Tensor v = g_.v();
        const bool written_out = sink_ || wrong_ != Wrong::none || moves_.coin();
        if (!written_out) {
            Tensor w = softmax(s);
            if (moves_.draw(4) == 0) w = w / keys_of(w);
            if (moves_.draw(4) == 0)
                w = reshape(transpose(transpose(w, {1, 0, 2, 3}), {1, 0, 2, 3}), {B, H, T, T});
            return moves_.coin()
                       ? matmul(w, v)
                       : transpose(matmul(v, w, {.transpose_a = true, .transpose_b = true}), {0, 1, 3, 2});
        }
        Tensor e = exponentials(s);
        if (wrong_ == Wrong::not_normalised) return matmul(e, v);
        Tensor sums = total(s, e);
        if (sink_) return with_sink(s, v);
        if (wrong_ == Wrong::gate_of_keys) {
            const Tensor w = e * g_.input("gate", {T});
            return matmul(w / keys_of(w), v);
        }
        if (wrong_ == Wrong::weights_elsewhere) g_.graph.add_result("weights", e.value());
        if (wrong_ == Wrong::weights_times_scores) return matmul(e / sums * s, v);
        switch (moves_.draw(4)) {
            case 0:
                return matmul(e / sums, v);
            case 1:
                return matmul(e * (number(1) / sums), v);
            case 2:
                return sums.dim(2) == T && sums.dim(3) == 1 ? matmul(e, v) / sums : matmul(e / sums, v);
            default:
                return matmul(reshape(e / sums, {B * H, T, T}), reshape(v, {B * H, T, D}));
        }
    }

    Tensor with_sink(Tensor s, Tensor v) {
        const Tensor logit = reshape(g_.input("sink", {H}), {1, H, 1, 1});
        if (moves_.coin()) {
            const Tensor m = maximum(max(s, {-1}, KeepAxes::yes), logit);
            const Tensor e = exp(s - m);
            Tensor sums = total(s, e);
            if (sums.dim(3) != 1) return matmul(e / sums, v);
            return matmul(e / (sums + exp(logit - m)), v);
        }
        const Tensor e = exp(s);
        return matmul(e / (total(s, e) + exp(logit)), v);
    }

    Given g_;
    Moves moves_;
    Wrong wrong_;
    bool causal_ = false, sink_ = false, is_hidden_ = false;
};

void expect_every_one_found(int from, int to) {
    for (int seed = from; seed < to; ++seed) {
        AttentionByMoves made(static_cast<std::uint32_t>(seed), Wrong::none);
        const Given& given = made.given();
        const AttentionMatch match = match_attention(given.graph);
        for (const PassRefusal& refusal : match.refused)
            ADD_FAILURE() << "seed " << seed << ": " << refusal.reason << "\n" << print(given.graph);
        ASSERT_EQ(match.matched, 1) << "seed " << seed << "\n" << print(given.graph);
        verify(match.graph, "match_attention");
        // Twelve digits of sums of some dozen terms.
        ASSERT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12)
            << "seed " << seed << "\n"
            << print(given.graph) << print(match.graph);
    }
}

void expect_none(int from, int to) {
    for (int seed = from; seed < to; ++seed) {
        const auto wrong = static_cast<Wrong>(1 + seed % (static_cast<int>(Wrong::count) - 1));
        AttentionByMoves made(static_cast<std::uint32_t>(seed), wrong);
        const Given& given = made.given();
        const AttentionMatch match = match_attention(given.graph);
        EXPECT_EQ(match.matched, 0) << "seed " << seed << ", move " << static_cast<int>(wrong) << "\n"
                                    << print(given.graph);
        EXPECT_EQ(print(match.graph), print(given.graph));
        EXPECT_GE(match.refused.size(), 1u) << "seed " << seed << "\n" << print(given.graph);
        for (const PassRefusal& refusal : match.refused) EXPECT_NE(refusal.reason, "");
    }
}

TEST(AttentionMoves, MovesThatChangeNothingAreFound) { expect_every_one_found(0, 200); }
TEST(AttentionMoves, OneWrongMoveIsNotTakenAndSaysWhy) { expect_none(0, 200); }
TEST(AttentionMovesSlow, MovesThatChangeNothingAreFound) { expect_every_one_found(200, 2200); }
TEST(AttentionMovesSlow, OneWrongMoveIsNotTakenAndSaysWhy) { expect_none(200, 2200); }

}  // namespace
}  // namespace mantissa
