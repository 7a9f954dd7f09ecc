// A trunk that is stored as codes and scales, beside which adapters are trained: every loss has the bits that
// it has beside the numbers that the codes stand for, on any number of threads, and nothing of the plan holds
// these.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/lora.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::error_of;

constexpr std::int64_t sequence = 24, batch = 2;

nn::Model trunk_model() { return nn::language_model("llama-tiny").on_sequences(sequence); }

TrainerOptions trunk_options(const char* policy, Layout trunk) {
    return {.batch = batch,
            .policy = policy,
            .lora = nn::LoraOptions{.rank = 3, .alpha = 6, .dropout = 0.1, .trunk = trunk}};
}

struct TrunkData {
    std::vector<std::int32_t> tokens, targets;
    explicit TrunkData(int step) {
        for (std::int64_t i = 0; i < batch * sequence; ++i) {
            tokens.push_back(static_cast<std::int32_t>((i * i + 7 * step) % 60));
            targets.push_back(static_cast<std::int32_t>((i * i + 2 * i + 1 + 7 * step) % 60));
        }
    }
    Batch values() const { return {tokens, targets}; }
};

std::vector<float> losses_of(Trainer& trainer, int steps) {
    std::vector<float> losses;
    for (int step = 0; step < steps; ++step)
        losses.push_back(trainer.step(TrunkData(step).values(), 1e-2).loss);
    return losses;
}

bool is_of_coded_trunk(const State& state) { return has_codes(state.type.layout); }

/// Writes what the codes of one trunk stand for to another.
void widen_into(const StateBlock& coded, StateBlock& plain) {
    for (const State& state : coded.states()) {
        if (!is_of_coded_trunk(state)) continue;
        std::vector<float> numbers(static_cast<std::size_t>(state.type.shape.elements()));
        coded.read_numbers(state.name, 0, numbers);
        if (plain.type(state.name).dtype == DType::f32) {
            plain.write(state.name, std::as_bytes(std::span(numbers)));
            continue;
        }
        std::vector<BF16> rounded;
        for (const float number : numbers) rounded.push_back(to_bf16(number));
        plain.write(state.name, std::as_bytes(std::span(rounded)));
    }
}

TEST(CodedTrunk, LossesAreThoseBesideItsNumbers) {
    for (const Layout trunk : {Layout::nf4, Layout::int4, Layout::int8})
        for (const char* policy : {"fp32", "bf16"}) {
            const auto device = make_cpu_device({.threads = 1}), three = make_cpu_device({.threads = 3});
            Trainer plain(*device, trunk_model(), trunk_options(policy, Layout::row_major));
            Trainer coded(*device, trunk_model(), trunk_options(policy, trunk));
            Trainer spread(*three, trunk_model(), trunk_options(policy, trunk));
            widen_into(coded.state(), plain.state());
            const int steps = trunk == Layout::nf4 ? testing::random_draws(50, 12) : 3;
            const std::vector<float> expected = losses_of(plain, steps);
            EXPECT_EQ(losses_of(coded, steps), expected) << policy << " " << name_of(trunk);
            EXPECT_EQ(losses_of(spread, steps), expected) << policy << " " << name_of(trunk);
            EXPECT_EQ(coded.evaluate(TrunkData(3).values()).loss, plain.evaluate(TrunkData(3).values()).loss);
            if (trunk == Layout::nf4) {
                EXPECT_LT(expected.back(), expected.front());
            }
        }
}

/// The one scale of a block that is another code's.
TEST(CodedTrunk, AWrongScaleShows) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer right(*device, trunk_model(), trunk_options("fp32", Layout::nf4));
    Trainer wrong(*device, trunk_model(), trunk_options("fp32", Layout::nf4));
    for (const State& state : wrong.state().states()) {
        if (!is_of_coded_trunk(state)) continue;
        std::vector<std::byte> codes = wrong.state().read(state.name);
        codes.back() ^= std::byte{0x40};
        wrong.state().write(state.name, codes);
        break;
    }
    EXPECT_NE(losses_of(wrong, 2), losses_of(right, 2));
}

TEST(CodedTrunk, IsThatOfLinearLayersButTheHead) {
    const auto device = make_cpu_device({.threads = 1});
    for (const char* policy : {"fp32", "bf16", "tf32"}) {
        if (std::string(policy) == "tf32" && !device->target().cannot_multiply_tf32.empty()) continue;
        const TrainingPlan plan(*device, trunk_model(), trunk_options(policy, Layout::nf4));
        std::size_t coded = 0;
        std::set<std::string> kept_as_numbers;
        for (const State& state : plan.step().graph().states()) {
            if (!is_own_weight(state) || state.type.shape.rank() != 2) continue;
            if (is_of_coded_trunk(state))
                ++coded;
            else
                kept_as_numbers.insert(state.name);
        }
        EXPECT_EQ(kept_as_numbers, (std::set<std::string>{"model.embed_tokens.weight"})) << policy;
        EXPECT_EQ(coded, 4u * 7);
        // Nothing makes numbers of a whole weight: its readers are products.
        const Graph& graph = plan.step().graph();
        for (const PlannedNode& planned : plan.step().nodes()) {
            const Node& node = graph.node(planned.node);
            if (node.op->name == "matmul" || node.op->name == "fused") continue;
            for (const Type& type : graph.input_types(node))
                EXPECT_FALSE(has_codes(type.layout)) << node.op->name;
        }
    }
}

TEST(CodedTrunk, IsMergedAsItsNumbers) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer trainer(*device, trunk_model(), trunk_options("bf16", Layout::nf4));
    trainer.save_weights(directory.path() / "model.safetensors");  // B is zero
    const SafetensorsFile file(directory.path() / "model.safetensors");
    std::size_t compared = 0;
    for (const State& state : trainer.state().states()) {
        if (!is_of_coded_trunk(state)) continue;
        std::vector<float> numbers(static_cast<std::size_t>(state.type.shape.elements()));
        trainer.state().read_numbers(state.name, 0, numbers);
        for (const TensorView& view : file.views())
            if (view.name.ends_with(state.name)) {
                EXPECT_EQ(std::memcmp(view.data, numbers.data(), numbers.size() * 4), 0) << state.name;
                ++compared;
            }
    }
    EXPECT_GE(compared, 7u);
}

TEST(CodedTrunk, GoesOnToTheSameBitsBesideTheSameTrunkAlone) {
    const auto device = make_cpu_device({.threads = 2});
    const TemporaryDirectory directory;
    const std::filesystem::path folder = directory.path() / "adapters";
    Trainer whole(*device, trunk_model(), trunk_options("bf16", Layout::nf4));
    losses_of(whole, 3);
    whole.save(folder);
    const std::vector<float> expected = losses_of(whole, 3);
    Trainer again(*device, trunk_model(), trunk_options("bf16", Layout::nf4));
    EXPECT_EQ(again.resume(folder), "");
    EXPECT_EQ(losses_of(again, 3), expected);
    EXPECT_EQ(testing::states_of(again), testing::states_of(whole));

    Trainer other(*device, trunk_model(), trunk_options("bf16", Layout::nf4));
    std::vector<std::byte> norm = other.state().read("model.norm.weight");
    norm[0] ^= std::byte{1};
    other.state().write("model.norm.weight", norm);
    const std::string refused = error_of([&] { other.resume(folder); });
    EXPECT_NE(refused.find("state.json: its adapters were trained beside frozen weights with checksum"),
              std::string::npos)
        << refused;
    EXPECT_NE(refused.find("give the model as it was"), std::string::npos) << refused;
    Trainer plain(*device, trunk_model(), trunk_options("bf16", Layout::row_major));
    EXPECT_NE(error_of([&] { plain.resume(folder); }).find("adapters.trunk = \"nf4\", this run has nothing"),
              std::string::npos);
}

TEST(CodedTrunk, ABlockThatIsNoNumberIsNamed) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, trunk_model(), trunk_options("bf16", Layout::nf4));
    const std::string name = "model.layers.1.mlp.up_proj.weight";
    std::vector<float> weights(static_cast<std::size_t>(trainer.state().type(name).shape.elements()));
    trainer.state().read_numbers(name, 0, weights);
    weights[700] = std::numeric_limits<float>::infinity();
    trainer.state().write(name, std::as_bytes(std::span(weights)));
    EXPECT_FALSE(trainer.step(TrunkData(0).values(), 1e-2).applied);
    const std::optional<NonFinite> found = trainer.first_non_finite(TrunkData(0).values(), 1e-2);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->source, NonFinite::Source::state);
    EXPECT_EQ(found->tensor, name);
}

TEST(CodedTrunk, RefusesInOneLineEach) {
    const auto device = make_cpu_device({.threads = 1});
    for (const char* policy : {"fp16", "mxfp8"})
        EXPECT_EQ(error_of([&] { TrainingPlan(*device, trunk_model(), trunk_options(policy, Layout::nf4)); }),
                  std::string("a trunk in nf4 is widened to f32 or bf16, which ") + policy +
                      " does not multiply; take the policy bf16, fp32 or tf32");
    EXPECT_EQ(nn::trunk_named("int4"), Layout::int4);
    EXPECT_EQ(error_of([] { nn::trunk_named("fp4"); }),
              "no format of frozen weights is called 'fp4'; there are nf4, int4 and int8");
    Graph graph;
    const Tensor codes(
        graph, graph.add_state({.name = "w", .type = {DType::f32, {4, 8}, Layout::nf4}, .initializer = {}}));
    EXPECT_NE(error_of([&] { codes + 1.0; }).find("operand 0 is f32[4, 8] as nf4; only products widen such"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                  graph.add_state({.name = "v", .type = {DType::f32, {8}, Layout::nf4}, .initializer = {}});
              }).find("only a floating matrix is kept as nf4, got f32 [8]"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
