// Ten forms of attention, each as models write it, and what is known by algebra alone: all are found, and
// values and every gradient are the reference's.
#include <gtest/gtest.h>

#include <functional>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/lay_out_attention.h"
#include "mantissa/passes/attention/match_attention.h"
#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

struct Form {
    const char* name;
    std::string formula;  ///< that it becomes; empty: any
    std::function<Tensor(Given&)> build;
};

Tensor plain_scores(Given& g) { return g.scores(g.q(), g.k()) / root; }
Tensor times_v(Given& g, Tensor weights) { return matmul(weights, g.v()); }
Tensor attend(Given& g, Tensor scores) { return times_v(g, softmax(scores)); }
Tensor attend_where(Given& g, Tensor sees, Tensor scores) {
    return attend(g, select(sees, scores, g.number(-infinity)));
}
/// As 0 and 1.
Tensor as_numbers(Tensor truth) { return cast(truth, DType::f32); }
Tensor either(Given& g, Tensor a, Tensor b) { return select(a, constant(g.graph, 1, DType::boolean), b); }
Tensor distance(Given& g) { return g.keys() - g.queries(); }  // i32 [T, S]
Tensor back(Given& g) { return g.queries() - g.keys(); }
Tensor row_sum(Tensor x) { return sum(x, {-1}, KeepAxes::yes); }
Tensor row_max(Tensor x) { return max(x, {-1}, KeepAxes::yes); }

const std::vector<Form> windows = {
    {"two comparisons", "s where j <= i and i < j + 3",
     [](Given& g) {
         return attend_where(g, logical_and(g.visible(), less(g.queries(), g.keys() + 3.0)), plain_scores(g));
     }},
    {"a bias of two masks", "s where j <= i and i - j < 3",
     [](Given& g) {
         const Tensor causal = select(g.visible(), g.number(0), g.number(-infinity));
         const Tensor window =
             select(less(back(g), constant(g.graph, 3, DType::i32)), g.number(0), g.number(-infinity));
         return attend(g, plain_scores(g) + reshape(causal + window, {1, 1, T, T}));
     }},
    {"the difference of two triangles, filled with -1e9", "",
     [](Given& g) {
         const Tensor lower = as_numbers(less_equal(g.keys(), g.queries() - 3.0));
         const Tensor band = g.triangle(T) - lower;
         return attend(g, select(equal(band, g.number(0)), g.number(-1e9), plain_scores(g)));
     }},
    {"weights times a band, normalised again", "s where j <= i and i < j + 3",
     [](Given& g) {
         const Tensor band = as_numbers(logical_and(g.visible(), less(g.queries(), g.keys() + 3.0)));
         const Tensor w = softmax(plain_scores(g)) * band;
         return times_v(g, w / row_sum(w));
     }},
    {"to both sides, by the size of the distance", "s where maximum(j - i, i - j) <= 1",
     [](Given& g) {
         const Tensor size = maximum(distance(g), back(g));
         return attend_where(g, less_equal(size, constant(g.graph, 1, DType::i32)), plain_scores(g));
     }},
    {"of one key", "s where j == i",
     [](Given& g) { return attend_where(g, equal(g.keys(), g.queries()), plain_scores(g)); }},
};

const std::vector<Form> caps = {
    {"tanh of the scores, divided and multiplied", "1.5 * tanh(s) where j <= i",
     [](Given& g) { return attend(g, g.masked(tanh(plain_scores(g) / 1.5) * 1.5)); }},
    {"the cap in the scale, the mask a bias", "1.5 * tanh(s) where j <= i",
     [](Given& g) {
         const Tensor s = tanh(g.scores(g.q() * (1 / root / 1.5), g.k())) * 1.5;
         return attend(g, s + select(g.visible(), g.number(0), g.number(-infinity)));
     }},
    {"by a sigmoid", "",
     [](Given& g) {
         const Tensor s = sigmoid(plain_scores(g) * (2 / 1.5)) * 2.0 - 1.0;
         return attend(g, g.masked(s * 1.5));
     }},
    {"by exponentials", "",
     [](Given& g) {
         const Tensor e = exp(plain_scores(g) * (-2 / 1.5));
         return attend(g, ((-e + 1.0) / (e + 1.0)) * 1.5);
     }},
};

Tensor slopes(Given& g) { return literal(g.graph, {0.5, 0.25, 0.125}, DType::f32, {H, 1, 1}); }

const std::vector<Form> biases = {
    {"slopes times the distance", "s + j * x1[h] where j <= i",
     [](Given& g) {
         return attend(g, g.masked(plain_scores(g) + cast(distance(g), DType::f32) * slopes(g)));
     }},
    {"slopes times the key's position", "",
     [](Given& g) {
         return attend(g, g.masked(plain_scores(g) + slopes(g) * iota(g.graph, {1, T}, 1, DType::f32)));
     }},
    {"slopes of powers, times the size of the distance, taken away", "",
     [](Given& g) {
         const Tensor power = exp((iota(g.graph, {H, 1, 1}, 0, DType::f32) + 1.0) * -0.7);
         const Tensor size = cast(maximum(distance(g), back(g)), DType::f32);
         return attend(g, plain_scores(g) - power * size);
     }},
    {"learned slopes, before the scale", "",
     [](Given& g) {
         const Tensor bias = reshape(g.input("slopes", {H}), {H, 1, 1}) * cast(distance(g), DType::f32);
         return attend(g, g.masked((g.scores(g.q(), g.k()) + bias) / root));
     }},
};

const std::vector<Form> prefixes = {
    {"causal, or of the prefix", "",
     [](Given& g) {
         const Tensor prefix = less(g.keys(), constant(g.graph, 2, DType::i32));
         return attend_where(g, either(g, prefix, g.visible()), plain_scores(g));
     }},
    {"the larger of two masks", "s where not (2 <= j and i < j)",
     [](Given& g) {
         const Tensor prefix = as_numbers(less(g.keys({1, T}), constant(g.graph, 2, DType::i32)));
         const Tensor mask = maximum(g.triangle(T), prefix);
         return attend(g, plain_scores(g) + (-mask + 1.0) * -1e9);
     }},
    {"a bias that is kept from the prefix", "",
     [](Given& g) {
         const Tensor bias = select(g.visible(), g.number(0), g.number(-infinity));
         const Tensor prefix = less(g.keys({1, T}), constant(g.graph, 2, DType::i32));
         return attend(g, plain_scores(g) + select(prefix, g.number(0), bias));
     }},
    {"a length for each text", "s where not (i < j and x1[b] <= j)",
     [](Given& g) {
         const Tensor lengths = reshape(g.ids("lengths", {B}, T), {B, 1, 1, 1});
         const Tensor prefix = less(iota(g.graph, {1, 1, 1, T}, 3), lengths);
         return attend_where(g, either(g, prefix, g.visible()), plain_scores(g));
     }},
};

const std::vector<Form> documents = {
    {"equal numbers", "s where j <= i and x1[b, i] == x2[b, j]",
     [](Given& g) {
         const Tensor d = g.ids("documents", {B, T}, 2);
         const Tensor same = equal(reshape(d, {B, 1, T, 1}), reshape(d, {B, 1, 1, T}));
         return attend_where(g, logical_and(same, g.visible()), plain_scores(g));
     }},
    {"a bias of -1e9 for other documents, and a causal mask", "s where j <= i and x1[b, i] == x2[b, j]",
     [](Given& g) {
         const Tensor d = g.ids("documents", {B, T}, 2);
         const Tensor same = equal(reshape(d, {B, T, 1}), reshape(d, {B, 1, T}));
         const Tensor bias = select(same, g.number(0), g.number(-1e9));
         return attend(g, g.masked(plain_scores(g) + reshape(bias, {B, 1, T, T})));
     }},
    {"a difference of zero", "",
     [](Given& g) {
         const Tensor d = reshape(g.ids("documents", {B, T}, 2), {B, 1, T, 1});
         const Tensor apart = d - transpose(d, {0, 1, 3, 2});
         return attend(
             g, select(equal(apart, constant(g.graph, 0, DType::i32)), plain_scores(g), g.number(-infinity)));
     }},
    {"weights of other documents are zero, and normalised again", "",
     [](Given& g) {
         const Tensor d = g.ids("documents", {B, T}, 2);
         const Tensor same = equal(reshape(d, {B, 1, T, 1}), reshape(d, {B, 1, 1, T}));
         const Tensor w = select(same, softmax(plain_scores(g)), g.number(0));
         return times_v(g, w * (g.number(1) / row_sum(w)));
     }},
};

/// Two heads of queries a head of keys, with a window and a cap.
const std::vector<Form> grouped_forms = [] {
    constexpr std::int64_t Q = 4, G = 2, R = Q / G;
    return std::vector<Form>{
        {"repeated, in a window", "s where j <= i and i < j + 2",
         [](Given& g) {
             const auto repeated = [](Tensor x) {
                 return reshape(broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, R, T, D}), {B, Q, T, D});
             };
             const Tensor s =
                 g.scores(g.input("q", {B, Q, T, D}), repeated(g.input("k", {B, G, T, D}))) / root;
             const Tensor sees = logical_and(g.visible(), less(g.queries(), g.keys() + 2.0));
             return matmul(softmax(select(sees, s, g.number(-infinity))),
                           repeated(g.input("v", {B, G, T, D})));
         }},
        {"heads in groups, with a scale for each", "",
         [](Given& g) {
             const auto spread = [](Tensor x) {
                 return broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, R, T, D});
             };
             const Tensor s = g.scores(g.input("q", {B, G, R, T, D}), spread(g.input("k", {B, G, T, D})));
             const Tensor scale = reshape(g.input("scale", {G}), {G, 1, 1, 1});
             return matmul(softmax(g.masked(s * scale)), spread(g.input("v", {B, G, T, D})));
         }},
        {"rows of one product, with a bias by head", "",
         [](Given& g) {
             const Tensor q = g.input("q", {B, Q, T, D});
             const Tensor k = g.input("k", {B, G, T, D}), v = g.input("v", {B, G, T, D});
             const Tensor s = reshape(g.scores(reshape(q, {B, G, R * T, D}), k), {B, Q, T, T}) / root;
             const Tensor slope = reshape(g.input("slopes", {Q}), {Q, 1, 1});
             const Tensor w = softmax(g.masked(s + slope * cast(distance(g), DType::f32)));
             return reshape(matmul(reshape(w, {B, G, R * T, T}), v), {B, Q, T, D});
         }},
    };
}();

Tensor sink_logit(Given& g) { return reshape(g.input("sink", {H}), {1, H, 1, 1}); }
const std::vector<Form> sinks = {
    {"a column that is left out again", "",
     [](Given& g) {
         const Tensor sink = broadcast_to(sink_logit(g), {B, H, T, 1});
         const Tensor all = concat(std::vector{g.masked(plain_scores(g)), sink}, -1);
         return times_v(g, slice(softmax(all), 3, 0, T));
     }},
    {"in the denominator, the maximum over both", "s",
     [](Given& g) {
         const Tensor s = plain_scores(g), sink = sink_logit(g);
         const Tensor m = maximum(row_max(s), sink);
         const Tensor e = exp(s - m);
         return times_v(g, e / (row_sum(e) + exp(sink - m)));
     }},
    {"one, added to the sum of exponentials", "",
     [](Given& g) {
         const Tensor e = exp(plain_scores(g));
         return times_v(g, e / (row_sum(e) + 1.0));
     }},
    {"before the keys, written out", "",
     [](Given& g) {
         const Tensor sink = broadcast_to(sink_logit(g), {B, H, T, 1});
         const Tensor all = concat(std::vector{sink, plain_scores(g)}, -1);
         const Tensor e = exp(all - row_max(all));
         return times_v(g, slice(e / row_sum(e), 3, 1, T + 1));
     }},
};

const std::vector<Form> temperatures = {
    {"the scores times a scale by head", "s * x1[h] where j <= i",
     [](Given& g) {
         return attend(g, g.masked(g.scores(g.q(), g.k()) * reshape(g.input("scale", {H}), {H, 1, 1})));
     }},
    {"divided by a temperature", "",
     [](Given& g) {
         return attend(g, g.masked(g.scores(g.q(), g.k()) / (exp(g.input("temperature", {})) + 1.0)));
     }},
    {"the exponential of its logarithm, behind the maximum", "",
     [](Given& g) {
         const Tensor s = plain_scores(g);
         const Tensor scale = exp(reshape(g.input("log_scale", {H}), {1, H, 1, 1}));
         return attend(g, (s - stop_gradient(row_max(s))) * scale);
     }},
};

/// bias [H, T, S] of a table [rows, H] by ids [T, S].
Tensor taken(Tensor table, Tensor ids) { return transpose(embedding(table, ids), {2, 0, 1}); }
const std::vector<Form> tables = {
    {"a row for each distance", "s + x1[j - i, h]",
     [](Given& g) {
         const Tensor table = g.input("table", {2 * T - 1, H});
         return attend(g, plain_scores(g) + taken(table, distance(g) + static_cast<double>(T - 1)));
     }},
    {"distances that are cut off, causal", "s + x1[j - i, h] where j <= i",
     [](Given& g) {
         const Tensor far = minimum(back(g), constant(g.graph, 2, DType::i32));
         const Tensor ids = maximum(far, constant(g.graph, 0, DType::i32));
         return attend(g, g.masked(plain_scores(g) + taken(g.input("table", {3, H}), ids)));
     }},
    {"by the logarithm of the distance, for all heads", "",
     [](Given& g) {
         const Tensor size = cast(maximum(distance(g), back(g)), DType::f32);
         const Tensor ids = cast(log(size + 1.0) * 2.0, DType::i32);
         return attend(g, plain_scores(g) * 1.5 + reshape(embedding(g.input("table", {4, 1}), ids), {T, T}));
     }},
    {"by a product with unit vectors", "",
     [](Given& g) {
         const Tensor ids = reshape(distance(g) + static_cast<double>(T - 1), {T * T, 1});
         const Tensor unit = as_numbers(equal(ids, iota(g.graph, {1, 2 * T - 1}, 1)));
         const Tensor bias = reshape(matmul(unit, g.input("table", {2 * T - 1, H})), {T, T, H});
         return attend(g, plain_scores(g) + transpose(bias, {2, 0, 1}));
     }},
};

RandomState counters(Given& g) {
    return {constant(g.graph, 5, DType::i64), constant(g.graph, 2, DType::i64)};
}
const std::vector<Form> dropouts = {
    {"the operation", "s where j <= i, weights times random[3] < 0.25 ? 0 : 1.3333334",
     [](Given& g) { return times_v(g, dropout(softmax(g.masked(plain_scores(g))), counters(g), 0.25, 3)); }},
    {"numbers of its own, compared", "s, weights times 0.25 < random[9] ? 1.3333334 : 0",
     [](Given& g) {
         const RandomState c = counters(g);
         const Tensor kept = less(g.number(0.25), random_uniform(c.seed, c.step, 9, {B, H, T, T}));
         return times_v(g, select(kept, softmax(plain_scores(g)) / 0.75, g.number(0)));
     }},
    {"times a mask, divided by what is kept", "",
     [](Given& g) {
         const RandomState c = counters(g);
         const Tensor kept =
             as_numbers(less_equal(g.number(0.25), random_uniform(c.seed, c.step, 9, {B * H, T, T})));
         return times_v(g, softmax(g.masked(plain_scores(g))) * reshape(kept, {B, H, T, T}) / 0.75);
     }},
    {"the operation, heads in the batch", "",
     [](Given& g) {
         const auto flat = [](Tensor x) { return reshape(x, {B * H, T, D}); };
         const Tensor w = softmax(g.masked(g.scores(flat(g.q()), flat(g.k())) / root));
         return matmul(dropout(w, counters(g), 0.25, 3), flat(g.v()));
     }},
};

/// Spellings that are softmax by their algebra.
const std::vector<Form> algebra = {
    {"in base 2", "s where j <= i",
     [](Given& g) {
         const Tensor s = g.masked(plain_scores(g)) * (1 / std::log(2.0));
         const Tensor e = exp((s - stop_gradient(row_max(s))) * std::log(2.0));
         return times_v(g, e / row_sum(e));
     }},
    {"a power of a learned base", "",
     [](Given& g) {
         const Tensor e = exp(plain_scores(g) * log(g.input("base", {}) * 0.1 + 3.0));
         return times_v(g, e / row_sum(e));
     }},
    {"normalised after the product with the values", "",
     [](Given& g) {
         const Tensor s = g.masked(plain_scores(g));
         const Tensor e = exp(s - stop_gradient(row_max(s)));
         return matmul(e, g.v()) / row_sum(e);
     }},
    {"normalised after it, by a reciprocal and through a transposition", "",
     [](Given& g) {
         const Tensor e = exp(plain_scores(g));
         const Tensor o = transpose(matmul(e, g.v()), {0, 2, 1, 3});
         return o * transpose(g.number(1) / row_sum(e), {0, 2, 1, 3});
     }},
    {"by the log-sum-exp", "s",
     [](Given& g) {
         const Tensor s = plain_scores(g), m = stop_gradient(row_max(s));
         return times_v(g, exp(s - (log(row_sum(exp(s - m))) + m)));
     }},
    {"constants along the keys, added and taken away", "s",
     [](Given& g) {
         const Tensor row = reshape(g.input("row", {B, T}), {B, 1, T, 1});
         const Tensor s = (plain_scores(g) + row) * 2.0 - sum(g.q(), {-1}, KeepAxes::yes);
         return attend(g, s + cast(g.queries({T, 1}), DType::f32));
     }},
    {"a mean over the keys taken away", "",
     [](Given& g) {
         const Tensor s = plain_scores(g);
         return attend(g, s - row_sum(s) / static_cast<double>(T));
     }},
    {"normalised twice", "",
     [](Given& g) {
         const Tensor w = softmax(plain_scores(g));
         return times_v(g, w / row_sum(w));
     }},
    {"weights masked without being normalised again", "",
     [](Given& g) { return times_v(g, softmax(plain_scores(g)) * g.triangle(T)); }},
    {"weights times a gate by head", "",
     [](Given& g) {
         return times_v(g, softmax(plain_scores(g)) * reshape(g.input("gate", {H}), {H, 1, 1}));
     }},
    {"a product of exponentials", "",
     [](Given& g) {
         const Tensor e = exp(plain_scores(g)) * exp(g.input("bias", {H, T, T}));
         return times_v(g, e / row_sum(e));
     }},
    {"masked scores become 0", "", [](Given& g) { return attend(g, plain_scores(g) * g.triangle(T)); }},
    {"a bias for each pair", "",
     [](Given& g) {
         return attend(g, plain_scores(g) + g.input("bias", {H, T, T}));
     }},
    {"a bias that is stored keys first", "",
     [](Given& g) {
         return attend(
             g, plain_scores(g) + reshape(transpose(g.input("bias", {T, B, T}), {1, 2, 0}), {B, 1, T, T}));
     }},
    {"gelu of the scores", "", [](Given& g) { return attend(g, gelu(plain_scores(g))); }},
    {"a mask from data", "s - 10000 * (1 - x1[b, j])",
     [](Given& g) {
         const Tensor mask = g.ids("mask", {B, 1, 1, T}, 2);
         return attend(g, plain_scores(g) + (-cast(mask, DType::f32) + 1.0) * -1e4);
     }},
};

void expect_found(const Form& form) {
    SCOPED_TRACE(form.name);
    Given given;
    given.graph.add_result("y", form.build(given).value());
    const AttentionMatch match = match_attention(given.graph);
    for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
    ASSERT_EQ(match.matched, 1);
    verify(match.graph, "match_attention");
    const std::string formula = form.formula.empty() ? formula_of(match.graph) : form.formula;
    EXPECT_EQ(formula_of(match.graph), formula);
    // Twelve digits of sums of some dozen terms.
    EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12) << print(match.graph);
    EXPECT_EQ(print(match_attention(match.graph).graph), print(match.graph)) << "is not idempotent";
}

TEST(AttentionForms, AllAreFoundAndValuesAndGradientsAreTheReferences) {
    const std::vector<const std::vector<Form>*> families{&windows,   &caps,          &biases, &prefixes,
                                                         &documents, &grouped_forms, &sinks,  &temperatures,
                                                         &tables,    &dropouts};
    for (const std::vector<Form>* family : families) {
        EXPECT_GE(family->size(), 3u);
        for (const Form& form : *family) expect_found(form);
    }
}

TEST(AttentionForms, TheLogSumExpMayBeReadBeside) {
    const std::vector<std::function<Tensor(Given&, Tensor)>> spellings = {
        [](Given&, Tensor s) {
            return log(row_sum(exp(s - stop_gradient(row_max(s))))) + stop_gradient(row_max(s));
        },
        [](Given&, Tensor s) { return log(sum(exp(s), {-1})); },
    };
    for (const auto& log_sum : spellings)
        for (const bool with_sink : {false, true}) {
            Given given;
            const Tensor s = given.masked(plain_scores(given)), l = log_sum(given, s);
            const Tensor e = exp(s - reshape(l, {B, H, T, 1}));
            Tensor o = times_v(given, e);
            // A sink by the log-sum-exp.
            if (with_sink) o = o * sigmoid(reshape(l, {B, H, T, 1}) - sink_logit(given));
            given.graph.add_result("y", o.value());
            given.graph.add_result("l", l.value());
            const AttentionMatch match = match_attention(given.graph);
            for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
            ASSERT_EQ(match.matched, 1);
            verify(match.graph, "match_attention");
            EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12) << print(match.graph);
        }
}

TEST(AttentionForms, AQueryThatSeesNoKeyGivesZero) {
    // Written out the reference has NaN in its row, and in what gradients its row has a part.
    for (const bool as_bias : {false, true}) {
        Given given;
        const Tensor sees = less(given.keys(), given.queries());
        const Tensor s = plain_scores(given);
        const Tensor masked = as_bias ? s + select(sees, given.number(0), given.number(-infinity))
                                      : select(sees, s, given.number(-infinity));
        given.graph.add_result("y", attend(given, masked).value());
        const AttentionMatch match = match_attention(given.graph);
        ASSERT_EQ(match.matched, 1);
        EXPECT_EQ(formula_of(match.graph), "s where j < i");
        const auto values = value_and_gradients(match.graph, given.feed);
        for (const auto& [name, numbers] : values)
            for (const double number : numbers) ASSERT_TRUE(std::isfinite(number)) << name;
        for (std::int64_t bh = 0; bh < B * H; ++bh)
            for (std::int64_t d = 0; d < D; ++d) {
                const auto at = static_cast<std::size_t>(bh * T * D + d);
                EXPECT_EQ(values.at("y")[at], 0);
                EXPECT_EQ(values.at("gradient of q")[at], 0);
            }
        // Without those queries it is the same as before.
        const ReferenceTensor before = ReferenceRun(given.graph, given.feed).result("y");
        for (std::size_t i = 0; i < before.values.size(); ++i)
            EXPECT_NEAR(values.at("y")[i], std::isnan(before.values[i]) ? 0 : before.values[i], 1e-13);
    }
}

TEST(AttentionForms, AQueryThatSeesNoKeyWeighsFiniteFillsAsTheyAreWritten) {
    // The first query sees no key, and in two sequences nor does the query at a place of padding on the left.
    for (const double fill : {-1e4, -1e30})
        for (const bool as_bias : {false, true})
            for (const bool padded : {false, true}) {
                SCOPED_TRACE(fmt::format("{} {} {}", fill, as_bias, padded));
                Given given;
                Tensor sees = less(given.keys(), given.queries());
                if (padded) {
                    const Tensor ids = given.ids("mask", {B, 1, 1, T}, 2);
                    sees = logical_and(less_equal(given.keys(), given.queries()), cast(ids, DType::boolean));
                }
                const Tensor s = plain_scores(given);
                const Tensor masked = as_bias ? s + select(sees, given.number(0), given.number(fill))
                                              : select(sees, s, given.number(fill));
                given.graph.add_result("y", attend(given, masked).value());
                const AttentionMatch match = match_attention(given.graph);
                for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
                ASSERT_EQ(match.matched, 1);
                verify(match.graph, "match_attention");
                // Sums of FP64 with 1e30 lose all of a score, those with 1e4 twelve digits of it.
                EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-10)
                    << print(match.graph);
            }
    // Two numbers: which of them a score lies beside is not known.
    Given two;
    const Tensor first = less(two.keys(), two.queries()), second = less(two.queries(), two.keys() + 9.0);
    two.graph.add_result("y", attend(two, plain_scores(two) + select(first, two.number(0), two.number(-1e4)) +
                                              select(second, two.number(0), two.number(-1e5)))
                                  .value());
    const AttentionMatch refused = match_attention(two.graph);
    EXPECT_EQ(print(refused.graph), print(two.graph));
    ASSERT_EQ(refused.refused.size(), 1u);
    EXPECT_NE(refused.refused[0].reason.find("finite numbers, and a query may see no key"),
              std::string::npos);
}

TEST(AttentionForms, ANumberThatAScoreMayMeetHidesNothing) {
    Given given;
    given.graph.add_result(
        "y", attend(given, select(less(given.keys(), given.queries()), plain_scores(given), given.number(-9)))
                 .value());
    const AttentionMatch match = match_attention(given.graph);
    EXPECT_EQ(formula_of(match.graph), "j < i ? s : -9");
    EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12);
}

TEST(AttentionForms, Extremes) {
    const auto capped = [](Tensor s) { return tanh(s / 20.0) * 20.0; };
    for (const double huge : {1e30, -1e30}) {
        Given given;
        given.graph.add_result("y", attend(given, given.masked(capped(plain_scores(given) * huge))).value());
        const AttentionMatch match = match_attention(given.graph);
        ASSERT_EQ(match.matched, 1);
        EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12);
    }
    // One position, seen in a window of one.
    Given given;
    const Tensor q = given.input("q", {B, H, 1, D}), k = given.input("k", {B, H, 1, D}),
                 v = given.input("v", {B, H, 1, D});
    const Tensor i = given.queries({1, 1}), j = given.keys({1, 1});
    const Tensor sees = logical_and(less_equal(j, i), less(i, j + 1.0));
    given.graph.add_result(
        "y", matmul(softmax(select(sees, capped(given.scores(q, k)), given.number(-infinity))), v).value());
    const AttentionMatch match = match_attention(given.graph);
    ASSERT_EQ(match.matched, 1);
    EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12);
}

TEST(AttentionForms, ACapThatIsNoneAndAWindowAsLargeAsTheTextArePlainAttention) {
    Given given;
    const Tensor sees =
        logical_and(given.visible(), less(given.queries(), given.keys() + static_cast<double>(T)));
    given.graph.add_result("y", attend_where(given, sees, plain_scores(given)).value());
    const AttentionMatch match = match_attention(given.graph);
    EXPECT_NE(print(match.graph).find("attention(%q, %k, %v) {causal=true, scale=0.5}\n"), std::string::npos)
        << print(match.graph);
}

TEST(AttentionForms, HeadsAreReadWhereTheyLieUnderAScoreToo) {
    Given given;
    const auto heads = [&](const char* name) {
        return transpose(given.input(name, {B, T, H, D}), {0, 2, 1, 3});
    };
    const Tensor s =
        tanh(given.scores(heads("q"), heads("k"))) * reshape(given.input("scale", {H}), {H, 1, 1});
    const Tensor sees = logical_and(given.visible(), less(given.queries(), given.keys() + 2.0));
    const Tensor o = matmul(softmax(select(sees, s, given.number(-infinity))), heads("v"));
    given.graph.add_result("y", reshape(transpose(o, {0, 2, 1, 3}), {B, T, C}).value());
    const AttentionMatch match = match_attention(given.graph);
    ASSERT_EQ(match.matched, 1);
    const LaidOutAttention laid = lay_out_attention(match.graph);
    verify(laid.graph, "lay_out_attention");
    EXPECT_NE(print(laid.graph).find("operands=q:bthd,k:bthd,v:bthd, result=bthd"), std::string::npos)
        << print(laid.graph);
    EXPECT_EQ(print(laid.graph).find("transpose"), std::string::npos) << print(laid.graph);
    EXPECT_LE(worst_difference(given.graph, laid.graph, given.feed), 1e-12);
}

TEST(AttentionForms, AnAttentionThatMayNotStandStaysWithTheReason) {
    Given given;
    given.graph.add_result("y", attend(given, tanh(plain_scores(given))).value());
    given.graph.add_result("z", attend(given, plain_scores(given)).value());
    const AttentionMatch match = match_attention(given.graph, {}, [](const Graph&, const Node& attention) {
        return attention.attributes.has("score") ? "no kernel for it" : "";
    });
    EXPECT_EQ(match.matched, 1);
    ASSERT_EQ(match.refused.size(), 1u);
    EXPECT_EQ(match.refused[0].text(), "attention: no kernel for it");
    EXPECT_NE(print(match.graph).find("softmax"), std::string::npos);
    EXPECT_LE(worst_difference(given.graph, match.graph, given.feed), 1e-12);
}

TEST(AttentionForms, WhatSoftmaxIsByItsAlgebra) {
    for (const Form& form : algebra) expect_found(form);
}

}  // namespace
}  // namespace mantissa
