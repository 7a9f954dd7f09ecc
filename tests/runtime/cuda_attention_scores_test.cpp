// Attention of scores of every kind on a GPU's matrix units, on the emulated one, over several tiles: o, the
// log-sum-exp and every gradient against the reference; what is refused; masks that hide nothing.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/attention_forms.h"
#include "tests/support/compiling_test.h"
#include "tests/support/random_draws.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::In;
using testing::TestedGpu;
using namespace testing::scoring;

class CudaAttentionScores : public testing::CompilingTest {};

/// Several tiles each way, none of them whole, and tiles that a window passes over; heads that share keys;
/// more keys than queries; one query; 32 rows a warp.
const Sizes many_tiles{{1, 2, 131, 131, 8, 2}}, in_groups{{2, 4, 70, 150, 6, 2}},
    one_query{{1, 3, 1, 9, 8, 1}}, of_64{{1, 1, 150, 150, 64, 1}}, of_128{{1, 1, 70, 70, 128, 1}};

/// Why the first kernel of a node's operation refuses it; empty if it does not.
std::string refusal(Device& device, const Graph& graph, const Node& node) {
    std::vector<Type> inputs;
    for (const Value& value : node.inputs) inputs.push_back(graph.type(value));
    std::string reason;
    for (const Kernel& kernel : device.kernels(node.op->name)) {
        const auto prepared = kernel.prepare({*node.op, inputs, node.outputs, node.attributes});
        if (prepared) return "";
        if (reason.empty() && prepared.reason().find("it is written for") == std::string::npos)
            reason = prepared.reason();
    }
    return reason;
}

/// The refusal of the gradient of a case's attention; the attention itself is never refused.
std::string gradient_refusal(Device& device, const Graph& graph) {
    std::string reason;
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        if (node.op->name == "attention") {
            EXPECT_EQ(refusal(device, graph, node), "");
        }
        if (node.op->name == "attention_grad") reason = refusal(device, graph, node);
    }
    return reason;
}

double worst_of(const Form& form, const Sizes& sizes, DType dtype, const Case& test, Device& device) {
    const ReferenceRun reference(test.graph, test.feed);
    const auto results = testing::run(testing::runnable(test.graph, device), test.feed, device);
    double worst = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Value value = test.graph.results()[i].value;
        const DType stored = test.graph.type(value).dtype;
        const double ratio =
            testing::worst_ratio(errors_of(form, sizes, dtype, i >= 2), stored,
                                 testing::loaded(results[i], stored), reference[value].values);
        EXPECT_LE(ratio, 1) << form.name << ", " << sizes.text() << " in " << name_of(dtype) << ": "
                            << test.graph.results()[i].name;
        worst = std::max(worst, ratio);
    }
    return worst;
}

void expect_agreement_or_refusal(const TestedGpu& gpu, const std::vector<Form>& forms,
                                 const std::map<std::string, std::string>& refused) {
    for (const Form& form : forms) {
        const auto expect = [&](const Sizes& sizes, DType dtype) {
            const Case test(form, sizes, dtype);
            const auto why = refused.find(form.name);
            const std::string reason = gradient_refusal(*gpu, test.graph);
            if (why == refused.end()) {
                EXPECT_EQ(reason, "") << form.name << ", " << sizes.text();
            } else if (!reason.empty()) {  // of one sequence and head it may be taken
                EXPECT_NE(reason.find(why->second), std::string::npos) << form.name << ": " << reason;
            }
            // In its lines a gradient takes long in software.
            const bool is_refused = !reason.empty();
            worst_of(form, sizes, dtype, is_refused ? Case(form, sizes, dtype, WithGradients::no) : test,
                     *gpu);
        };
        const Sizes sizes_of_all[] = {in_groups, many_tiles, one_query};
        for (std::size_t i = 0; i < 3; ++i)
            if (testing::sweeps_are_whole() || i == static_cast<std::size_t>(&form - forms.data()) % 3)
                expect(sizes_of_all[i], DType::bf16);
        if (&form != &forms.front()) continue;
        for (const Sizes& sizes : {of_64, of_128}) expect(sizes, DType::bf16);
        expect(in_groups, DType::f16);
    }
}

void expect_agreement_of_functions(const TestedGpu& gpu) {
    const std::string of_distance = "adds up pairs of equal distance",
                      of_several = "adds up pairs of several sequences or heads",
                      in_group = "keeps heads of a group apart";
    expect_agreement_or_refusal(gpu, function_forms(),
                                {{"tables of distances", of_distance},
                                 {"all at once", of_distance},
                                 {"a bias by ts", of_several},
                                 {"a bias by hts", of_several},
                                 {"a bias by sbt", of_several},
                                 {"a bias by hs", in_group}});
}

TEST_F(CudaAttentionScores, MasksAgreeWithTheReference) {
    expect_agreement_or_refusal(TestedGpu(), masked_forms(), {});
}

TEST_F(CudaAttentionScores, FunctionsAgreeWithTheReference) { expect_agreement_of_functions(TestedGpu()); }

using CudaAttentionScoresSlow = CudaAttentionScores;

TEST_F(CudaAttentionScoresSlow, ByWarpgroupsAgreeWithTheReference) {
    const TestedGpu gpu = TestedGpu::by_warpgroups();
    if (!(*gpu).target().isa.starts_with("sm_90,")) GTEST_SKIP() << "the GPU has no wgmma";
    expect_agreement_or_refusal(gpu, masked_forms(), {});
    expect_agreement_of_functions(gpu);
}

TEST_F(CudaAttentionScores, AnotherWindowIsNotWithinTheirErrors) {
    const TestedGpu gpu;
    const Case test(window(40), many_tiles, DType::bf16), other(window(41), many_tiles, DType::bf16);
    const ReferenceRun reference(test.graph, test.feed);
    const auto results = testing::run(other.graph, other.feed, *gpu);
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Value value = test.graph.results()[i].value;
        const DType stored = test.graph.type(value).dtype;
        EXPECT_GT(testing::worst_ratio(errors_of(window(40), many_tiles, DType::bf16, i >= 2), stored,
                                       testing::loaded(results[i], stored), reference[value].values),
                  1)
            << test.graph.results()[i].name;
    }
}

TEST_F(CudaAttentionScores, AWindowAsLargeAsTheTextHasPlainAttentionsBits) {
    const TestedGpu gpu;
    const Form plain{.name = "plain"};
    for (const Sizes& sizes : {many_tiles, in_groups, of_64}) {
        const Case all(window(sizes.e.keys), sizes, DType::bf16), none(plain, sizes, DType::bf16);
        EXPECT_EQ(testing::run(all.graph, all.feed, *gpu), testing::run(none.graph, none.feed, *gpu))
            << sizes.text();
    }
}

/// A mask that asks for the scores themselves is known of no tile before they are made.
TEST_F(CudaAttentionScores, AMaskOfTheScoresIsTaken) {
    const TestedGpu gpu;
    const Form form{.name = "scores above a bound", .build = [](Graph& body, Tensor s, In) {
                        const Tensor own = equal(at(s, 2), at(s, 3));
                        result(body, "score", s);
                        result(body, "visible", either(own, less(constant(body, -0.5), s)));
                    }};
    const Case test(form, in_groups, DType::bf16);
    EXPECT_EQ(gradient_refusal(*gpu, test.graph), "");
    Case exact(form, {{1, 1, 40, 40, 16, 1}}, DType::bf16);
    for (double& q : exact.feed["q"]) q = std::round(q);  // products that no order of addition changes
    for (double& k : exact.feed["k"]) k = std::round(k);
    worst_of(form, {{1, 1, 40, 40, 16, 1}}, DType::bf16, exact, *gpu);
}

TEST_F(CudaAttentionScores, EnormousScoresUnderACapStayFinite) {
    const TestedGpu gpu;
    const Form capped{.name = "capped", .build = [](Graph& body, Tensor s, In) {
                          result(body, "score", tanh(s * (1.0 / 30)) * 30.0);
                      }};
    Case test(capped, many_tiles, DType::bf16);
    for (double& q : test.feed["q"]) q *= 0x1p96;
    const auto results = testing::run(test.graph, test.feed, *gpu);
    for (std::size_t i = 0; i < results.size(); ++i)
        for (const double x :
             testing::loaded(results[i], test.graph.type(test.graph.results()[i].value).dtype))
            ASSERT_TRUE(std::isfinite(x)) << test.graph.results()[i].name;
}

/// A window is one operation in a step for the GPU, and its gradient; a learned table of distances stays as
/// it is, and the pass says so.
TEST_F(CudaAttentionScores, AreFoundWhereTheGpuTakesThem) {
    const TestedGpu gpu;
    const auto built = [&](bool by_table) {
        const auto model = [&](Graph& graph) {
            const auto state = [&](const char* name, Shape shape) {
                return Tensor(
                    graph, graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
            };
            const Tensor w = state("w", {1, 2, 64, 16});
            Tensor scores = matmul(w, w, {.transpose_b = true}) * 0.25;
            const Shape pairs{64, 64};
            const Tensor queries = iota(graph, pairs, 0), keys = iota(graph, pairs, 1);
            if (by_table)
                scores = scores + reshape(embedding(state("table", {127, 1}), keys - queries + 63.0), pairs);
            const Tensor seen = logical_and(less_equal(keys, queries), less(queries, keys + 9.0));
            const Tensor hidden = constant(graph, -INFINITY);
            return sum(matmul(softmax(select(seen, scores, hidden)), w), {0, 1, 2, 3});
        };
        const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
            graph.add_result("loss", loss.value());
            for (const ParameterGradient& each : gradients)
                graph.add_update(each.state, each.gradient.value());
        };
        return build_training_step(model, update, {.policy = "bf16", .match_attention = true},
                                   machine_for_passes(*gpu));
    };
    const auto count = [](const Graph& graph, const std::string& op) {
        int nodes = 0;
        for (std::size_t id = 0; id < graph.size(); ++id)
            nodes += graph.node(static_cast<NodeId>(id)).op->name == op;
        return nodes;
    };
    const BuiltGraph of_window = built(false), of_table = built(true);
    EXPECT_EQ(count(of_window.graph, "attention"), 1);
    EXPECT_EQ(count(of_window.graph, "attention_grad"), 1);
    EXPECT_TRUE(of_window.refused.empty());
    EXPECT_EQ(count(of_table.graph, "attention"), 0);
    ASSERT_EQ(of_table.refused.size(), 1u);
    const std::string& why = of_table.refused[0].reason;
    EXPECT_NE(
        why.find("the device has no kernel for the gradient of attention of bf16 and of such a score: "),
        std::string::npos)
        << why;
    EXPECT_NE(why.find("no kernel adds up pairs of equal distance"), std::string::npos) << why;
}

TEST_F(CudaAttentionScores, HasTheSameBitsEachTime) {
    const TestedGpu gpu;
    const testing::EmulatedDevice with_one_thread({.threads = 1});
    for (const Form& form : testing::some_of(masked_forms(), 3)) {
        const Case test(form, in_groups, DType::bf16);
        const auto first = testing::run(test.graph, test.feed, *gpu);
        EXPECT_EQ(testing::run(test.graph, test.feed, *gpu), first) << form.name;
        if (std::getenv("MANTISSA_TEST_GPU")) continue;  // of an emulated GPU the threads are the host's
        EXPECT_EQ(testing::run(test.graph, test.feed, *with_one_thread), first) << form.name;
    }
}

}  // namespace
}  // namespace mantissa
