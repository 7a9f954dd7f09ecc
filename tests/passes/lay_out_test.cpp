// Derived state: read instead of computed, written with what it follows from, the same bits everywhere.
#include "mantissa/passes/lay_out.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <set>

#include "mantissa/base/random.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/gpt2.h"
#include "tests/support/random_draws.h"

namespace mantissa {
namespace {

std::vector<double> some_values(std::int64_t count, std::uint64_t seed) {
    const RandomStream random{.seed = seed, .step = 0, .operation = 7};
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
    return values;
}

/// Values for all inputs and states, derived ones apart.
ReferenceFeed feed_of_all(const Graph& graph, std::int64_t ids_below = 7) {
    ReferenceFeed feed;
    std::uint64_t seed = 1;
    const auto add = [&](const std::string& name, const Type& type) {
        std::vector<double>& values = feed[name] = some_values(type.shape.elements(), ++seed);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (type.dtype == DType::i32) values[i] = static_cast<double>(static_cast<int>(i) % ids_below);
            if (name.starts_with("adamw.v.")) values[i] = 1 + values[i] * values[i];
            if (name == "learning_rate") values[i] = 0.01;  // far enough from what FP16 cannot hold
            if (name == "adamw.step") values[i] = 3;
        }
    };
    for (const NodeId id : graph.inputs())
        add(graph.node(id).attributes.word("name"), graph.node(id).outputs[0]);
    for (const State& state : graph.states())
        if (state.kind != State::Kind::derived) add(state.name, state.type);
    return feed;
}

void derive_into(const LaidOut& laid, ReferenceFeed& feed) {
    for (const State& state : laid.derive.states())  // what they were before is not read
        if (state.kind == State::Kind::derived)
            feed[state.name].resize(static_cast<std::size_t>(state.type.shape.elements()));
    feed = ReferenceRun(laid.derive, feed).next(feed);
}

/// Results and states of two runs, one after the other: the second reads what the first wrote.
using Numbers = std::vector<std::vector<double>>;
Numbers two_runs(const Graph& graph, ReferenceFeed feed, bool with_derived) {
    Numbers numbers;
    for (int i = 0; i < 2; ++i) {
        const ReferenceRun run(graph, feed);
        for (const Result& result : graph.results()) numbers.push_back(run[result.value].values);
        feed = run.next(feed);
    }
    for (const State& state : graph.states())
        if (with_derived || state.kind != State::Kind::derived) numbers.push_back(feed.at(state.name));
    return numbers;
}

void expect_same_meaning(const Graph& graph, const ReferenceFeed& feed, const std::string& what) {
    const LaidOut laid = lay_out(graph);
    verify(laid.graph, "lay_out");
    verify(laid.derive, "lay_out, derive");
    ReferenceFeed with_derived = feed;
    derive_into(laid, with_derived);
    ASSERT_TRUE(two_runs(laid.graph, with_derived, false) == two_runs(graph, feed, false)) << what;
    // The derived states after the run are what they would be made anew.
    ReferenceFeed after = ReferenceRun(laid.graph, with_derived).next(with_derived), anew = after;
    derive_into(laid, anew);
    ASSERT_TRUE(after == anew) << what;
    const LaidOut again = lay_out(laid.graph);
    ASSERT_EQ(print(again.graph), print(laid.graph)) << what;
    ASSERT_EQ(again.derive.size(), 0u) << what;
}

Graph clipped_step(const char* policy, double rate_of_dropout = 0) {
    nn::Gpt2Config config = testing::small_gpt2(2, 8, 7);
    config.context = 5;
    config.dropout = rate_of_dropout;
    return build_training_step(testing::traced_gpt2(config, {2, 5}), optimizer_update(clipped(adamw(), 1.0)),
                               {.policy = find_policy(policy)})
        .graph;
}

TEST(LayOut, ReadsACopyThatAdamWWrites) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::bf16, {2, 3}}));
    const Tensor w(graph, graph.add_state({.name = "w", .type = {DType::f32, {4, 3}}, .initializer = {}}));
    const Tensor once = cast(w, DType::bf16);
    graph.add_result("y", matmul(x, once, {.transpose_b = true}).value());
    const Tensor g(graph, graph.add_input("g", {DType::f32, {4, 3}}));
    const Tensor one = constant(graph, 1.0), m = g * 1.0, v = g * g;
    const auto updated =
        call(graph, "adamw",
             std::vector{w, g, m, v, one, cast(one, DType::f64), one, less(constant(graph, 0.0), one)},
             {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}});
    graph.add_update(0, updated[0].value());
    const LaidOut laid = lay_out(graph);
    EXPECT_EQ(print(laid.derive),
              "%0: f32[4, 3] = state() {dtype=f32, name=w, shape=[4, 3]}\n"
              "%1: bf16[4, 3] = cast(%w) {dtype=bf16}\n"
              "%2: bf16[4, 3] = state() {dtype=bf16, name=bf16.w, shape=[4, 3]}\n"
              "update bf16.w = %1\n");
    const std::string text = print(laid.graph);
    EXPECT_NE(text.find("matmul(%x, %bf16.w)"), std::string::npos) << text;
    EXPECT_EQ(text.find("= cast(%w)"), std::string::npos) << text;
    EXPECT_NE(text.find("update bf16.w = %"), std::string::npos) << text;
    EXPECT_EQ(laid.graph.states()[1].kind, State::Kind::derived);
}

TEST(LayOut, AnyUpdateThatCanTakesACopy) {
    for (const double momentum : {0.0, 0.9}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::bf16, {2, 3}}));
        const Tensor w(graph,
                       graph.add_state({.name = "w", .type = {DType::f32, {4, 3}}, .initializer = {}}));
        graph.add_result("y", matmul(x, cast(w, DType::bf16), {.transpose_b = true}).value());
        const Tensor g(graph, graph.add_input("g", {DType::f32, {4, 3}}));
        const Tensor one = constant(graph, 1.0);
        std::vector<Tensor> operands = {w, g, one, one, less(constant(graph, 0.0), one)};
        if (momentum > 0) operands.insert(operands.end(), {g * g, cast(one, DType::f64)});
        const auto updated =
            call(graph, "sgd", operands,
                 {{"momentum", momentum}, {"dampening", 0.0}, {"nesterov", false}, {"weight_decay", 0.1}});
        graph.add_update(0, updated[0].value());
        const LaidOut laid = lay_out(graph);
        const int copy = laid.graph.find_state("bf16.w");
        ASSERT_EQ(laid.graph.updates().size(), 2u);
        for (const Update& written : laid.graph.updates()) {
            const Node& update = laid.graph.node(written.value.node);
            EXPECT_EQ(update.op->name, "sgd");
            EXPECT_TRUE(update.op->takes_copy(update.inputs.size(), update.attributes));
            EXPECT_EQ(laid.graph.state_of(update.inputs.back().node), copy);
            const auto last = static_cast<std::int32_t>(update.outputs.size()) - 1;
            EXPECT_EQ(written.value.output, written.state == copy ? last : 0);
        }
        expect_same_meaning(graph, feed_of_all(graph), "sgd");
    }
}

TEST(LayOut, TheCopyOfAPaddedParameterIsPaddedWhereItLies) {
    for (const std::int64_t zero_rows : {4, 2}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::bf16, {2, 3}}));
        const Tensor w(
            graph,
            graph.add_state(
                {.name = "w", .type = {DType::f32, {4, 3}}, .initializer = {}, .zero_rows = zero_rows}));
        const Tensor rows = cast(pad(w, 0, 0, 4), DType::bf16);
        graph.add_result("y", matmul(x, rows, {.transpose_b = true}).value());
        const LaidOut laid = lay_out(graph);
        const std::string text = print(laid.graph);
        if (zero_rows == 2) {  // the pad is a copy, so is the cast
            EXPECT_EQ(laid.graph.states().size(), 1u) << text;
            continue;
        }
        ASSERT_EQ(laid.graph.states().size(), 2u) << text;
        EXPECT_EQ(laid.graph.states()[1].zero_rows, 4);
        EXPECT_EQ(laid.graph.states()[1].type, (Type{DType::bf16, {4, 3}}));
        EXPECT_NE(text.find("= pad(%bf16.w)"), std::string::npos) << text;
        EXPECT_EQ(text.find("= cast("), std::string::npos) << text;
        expect_same_meaning(graph, feed_of_all(graph), "padded");
    }
}

TEST(LayOut, OfGpt2sStepKeepsEveryBitAndLeavesNoCastOfAParameter) {
    for (const char* policy : {"bf16", "fp16"}) {
        const Graph graph = clipped_step(policy);
        expect_same_meaning(graph, feed_of_all(graph), policy);
        const LaidOut laid = lay_out(graph);
        std::set<int> copied;
        for (std::size_t i = 0; i < laid.graph.size(); ++i) {
            const Node& node = laid.graph.node(static_cast<NodeId>(i));
            if (node.op->name == "cast") {
                EXPECT_LT(laid.graph.state_of(node.inputs[0].node), 0)
                    << print(laid.graph, static_cast<NodeId>(i));
            }
            if (node.op->name == "adamw" && node.outputs.size() == 4)
                copied.insert(laid.graph.state_of(node.inputs[0].node));
        }
        // Weight and bias of four linear layers in each of two blocks, and the table of the last product.
        EXPECT_EQ(copied.size(), 2u * 8 + 1);
    }
}

TEST(LayOut, ChangesNothingWhereNothingIsDerived) {
    const Graph graph = clipped_step("fp32");
    const LaidOut laid = lay_out(graph);
    EXPECT_EQ(laid.derive.size(), 0u);
    EXPECT_EQ(laid.graph.states().size(), graph.states().size());
    EXPECT_EQ(laid.graph.size(), graph.size());
}

TEST(LayOut, LeavesACastThatIsAResult) {
    Graph graph;
    const Tensor p(
        graph,
        graph.add_state(
            {.kind = State::Kind::parameter, .name = "p", .type = {DType::f32, {4, 6}}, .initializer = {}}));
    const Tensor half = cast(p, DType::bf16);
    graph.add_result("half", reshape(half, {24}).value());
    graph.add_result("y", (half * half).value());
    graph.add_update(graph.find_state("p"), (p * 0.5).value());
    const LaidOut laid = lay_out(graph);
    EXPECT_EQ(print(laid.graph), print(graph));
    EXPECT_TRUE(laid.derive.states().empty());
}

TEST(LayOut, ABadStepLeavesTheCopies) {
    const Graph graph = clipped_step("bf16");
    const LaidOut laid = lay_out(graph);
    ReferenceFeed feed = feed_of_all(graph);
    feed["ln_f.weight"][0] = std::numeric_limits<double>::infinity();
    derive_into(laid, feed);
    // NaN is not equal to itself, so moments are no part of this.
    const ReferenceFeed after = ReferenceRun(laid.graph, feed).next(feed);
    for (const State& state : laid.graph.states())
        if (state.kind == State::Kind::derived) {
            EXPECT_EQ(after.at(state.name), feed.at(state.name)) << state.name;
        }
}

/// Parameters, casts of them and of casts, products, results and updates, drawn at random.
struct RandomStates {
    Graph graph;

    explicit RandomStates(std::uint64_t seed) : random_{.seed = seed, .step = 0, .operation = 0} {
        for (const char* name : {"a", "b", "c"})
            pool_.emplace_back(graph, graph.add_state({.kind = below(4) == 0 ? State::Kind::optimizer
                                                                             : State::Kind::parameter,
                                                       .name = name,
                                                       .type = {DType::f32, {3, 3}},
                                                       .initializer = {}}));
        pool_.emplace_back(graph, graph.add_input("x", {DType::f32, {3, 3}}));
        for (int i = 0; i < 16; ++i) add_node();
        graph.add_result("y", cast(pool_.back(), DType::f32).value());
        graph.add_result("z", (cast(any(), DType::f32) * 0.5).value());
        for (int state = 0; state < 3; ++state)
            if (below(3) > 0) graph.add_update(state, tanh(cast(any(), DType::f32)).value());
    }

  private:
    std::size_t below(std::size_t limit) { return random_.bits(next_++) % limit; }
    Tensor any() { return pool_[below(pool_.size())]; }
    void add_node() {
        const Tensor x = any(), y = any();
        const DType formats[] = {DType::bf16, DType::f16, DType::f32};
        switch (below(4)) {
            case 0:
                return pool_.push_back(cast(x, formats[below(3)]));
            case 1:
                return pool_.push_back(cast(pool_[below(3)], formats[below(2)]));
            case 2:
                return pool_.push_back(matmul(x, cast(y, x.dtype())));
            default:
                return pool_.push_back(x + cast(y, x.dtype()));
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
    std::vector<Tensor> pool_;
};

TEST(LayOut, KeepsEveryBitOfRandomGraphsAndIsIdempotent) {
    std::size_t derived = 0;
    const auto draws = static_cast<std::uint64_t>(testing::random_draws(1000));
    for (std::uint64_t seed = 0; seed < draws; ++seed) {
        const RandomStates random(seed);
        expect_same_meaning(random.graph, feed_of_all(random.graph), "seed " + std::to_string(seed));
        derived += lay_out(random.graph).derive.updates().size();
    }
    EXPECT_GT(derived, draws);
}

}  // namespace
}  // namespace mantissa
