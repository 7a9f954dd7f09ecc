// Other uses of a model in training, on the emulated GPU: micro-batches, the replay of a bad step,
// validation, generating.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/perplexity.h"
#include "tests/support/compiling_test.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/largest_difference.h"
#include "tests/support/run_graph.h"
#include "tests/support/tested_gpu.h"
#include "tests/support/trains_alike.h"
#include "tests/train/tenfold_parameters.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::is_no_loss_scale;
using testing::largest_difference;
using testing::StateBytes;
using testing::states_of;
using testing::TestedGpu;

std::unique_ptr<Device> a_cpu() { return testing::device_at(testing::levels().back()); }

class CudaUses : public testing::CompilingTest {};

/// Three micro-batches of two sequences each, fused.
Gpt2Training accumulating(const std::string& policy) {
    Gpt2Training training = small_gpt2_training(policy);
    training.accumulate = 3;
    training.optimizer = clipped(adamw(), 0.5);
    training.passes = optional_pass_names();
    return training;
}

TEST_F(CudaUses, MicroBatchesAddUpToWhatTheCpuMakesOfThem) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    const Gpt2Training training = accumulating("fp32");
    const SomeTokens batch(2 * 16 * 3);
    Trainer here = gpt2_trainer(*cpu, training), there = gpt2_trainer(*gpu, training);
    expect_trains_alike(there, here, batch, 2);
    // Each micro-batch counts: with other targets in the last one the loss is another.
    SomeTokens altered = batch;
    std::fill(altered.targets.end() - 16, altered.targets.end(), 3);
    const float right = there.step({batch.tokens, batch.targets}, 0).loss;
    EXPECT_GT(std::abs(there.step({altered.tokens, altered.targets}, 0).loss - right), 1e-3F);
}

TEST_F(CudaUses, MicroBatchesHaveTheSameBitsEachTime) {
    const TestedGpu gpu;
    const SomeTokens batch(2 * 16 * 3);
    const auto trained = [&] {
        Trainer trainer = gpt2_trainer(*gpu, accumulating("bf16"));
        for (int step = 0; step < 2; ++step)
            EXPECT_TRUE(trainer.step({batch.tokens, batch.targets}, 1e-3).applied);
        return states_of(trainer, is_no_loss_scale);
    };
    const StateBytes once = trained();
    EXPECT_TRUE(trained() == once);
}

/// The largest difference of two numbers over the largest number.
double distance_between(const std::vector<float>& got, const std::vector<float>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        most = std::max(most, static_cast<double>(std::abs(got[i] - expected[i])));
        largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
    }
    return most / largest;
}

/// Fused, where the updates of many parameters are one: those that stand together have gradients, too, and
/// the loss is there when a step stops.
TEST_F(CudaUses, AStepStopsAtTheLossAndTheGradientsOfTheCpu) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    Gpt2Training training = small_gpt2_training("fp32");
    training.passes = optional_pass_names();
    const SomeTokens batch(2 * 16);
    Trainer here = gpt2_trainer(*cpu, training), there = gpt2_trainer(*gpu, training);
    const Gradients& expected = here.gradients({batch.tokens, batch.targets});
    const Gradients& got = there.gradients({batch.tokens, batch.targets});
    EXPECT_NEAR(got.loss(), expected.loss(), 2e-5);  // trains_alike.h
    ASSERT_EQ(got.names(), expected.names());
    EXPECT_EQ(got.names().size(), 28U);
    for (const std::string& name : got.names())
        EXPECT_LT(distance_between(got.read(name), expected.read(name)), 1e-4) << name;
    EXPECT_NEAR(there.update(1e-3).loss, expected.loss(), 2e-5);
}

/// A number put into one weight.
void put(Trainer& trainer, const std::string& state, std::size_t element, float value) {
    std::vector<float> values = trainer.state().read_f32(state);
    values.at(element) = value;
    trainer.state().write(state, std::as_bytes(std::span<const float>(values)));
}

/// The message about a bad step, after checking that neither it nor the search left a trace.
std::string name_of_bad_step(Trainer& trainer, const SomeTokens& batch) {
    const StateBytes before = states_of(trainer, is_no_loss_scale);
    EXPECT_FALSE(trainer.step({batch.tokens, batch.targets}, 1e-3).applied);
    EXPECT_TRUE(states_of(trainer, is_no_loss_scale) == before) << "the step";
    const auto found = trainer.first_non_finite({batch.tokens, batch.targets}, 1e-3);
    EXPECT_TRUE(states_of(trainer, is_no_loss_scale) == before) << "the search";
    return found ? found->text() : "nothing";
}

TEST_F(CudaUses, ABadStepIsNamedAsOnTheCpu) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    Gpt2Training training = small_gpt2_training("fp32");
    training.accumulate = 2;
    training.passes.clear();  // the devices' graphs are then the same
    const SomeTokens batch(2 * 16 * 2);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto with_nan = [&](Trainer& trainer) { put(trainer, "h.1.mlp.c_fc.weight", 2 * 64 + 5, nan); };
    // Products of 3e38 with what a norm made, about 1 in size: some are more than FP32 holds.
    const auto with_overflow = [&](Trainer& trainer) {
        for (std::size_t i = 0; i < 64; ++i)
            put(trainer, "h.0.attn.c_attn.weight", i, i % 2 == 0 ? 3e38F : -3e38F);
    };
    const std::string names[] = {"h.1.mlp.c_fc.weight holds nan: element [2, 5] of f32[256, 64]", " made "};
    for (const bool overflows : {false, true}) {
        std::vector<std::string> told;
        for (Device* device : {cpu.get(), &*gpu}) {
            Trainer trainer = gpt2_trainer(*device, training);
            EXPECT_TRUE(trainer.step({batch.tokens, batch.targets}, 1e-3).applied);
            overflows ? with_overflow(trainer) : with_nan(trainer);
            told.push_back(name_of_bad_step(trainer, batch));
        }
        EXPECT_EQ(told[1], told[0]);
        EXPECT_NE(told[1].find(names[overflows ? 1 : 0]), std::string::npos) << told[1];
    }
}

/// Fused, in FP16 with its loss scale: the scale is halved, and the next step is as good as ever.
TEST_F(CudaUses, AfterABadStepTrainingGoesOn) {
    const TestedGpu gpu;
    Gpt2Training training = small_gpt2_training("fp16");
    training.passes = optional_pass_names();
    const SomeTokens batch(2 * 16);
    Trainer trainer = gpt2_trainer(*gpu, training);
    EXPECT_TRUE(trainer.step({batch.tokens, batch.targets}, 1e-3).applied);
    const double scale = trainer.loss_scale().scale;
    const float weight = trainer.state().read_f32("ln_f.weight")[3];
    put(trainer, "ln_f.weight", 3, std::numeric_limits<float>::infinity());
    EXPECT_NE(name_of_bad_step(trainer, batch).find("ln_f.weight holds inf: element [3] of f32[64]"),
              std::string::npos);
    EXPECT_EQ(trainer.loss_scale().scale, scale / 2);
    put(trainer, "ln_f.weight", 3, weight);
    EXPECT_TRUE(trainer.step({batch.tokens, batch.targets}, 1e-3).applied);
}

TEST_F(CudaUses, ValidationIsThatOfTheCpuAndChangesNothing) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    Gpt2Training training = small_gpt2_training("fp32");
    training.model.dropout = 0.2;  // in steps alone
    training.passes = optional_pass_names();
    const SomeTokens batch(2 * 16);
    Trainer here = gpt2_trainer(*cpu, training), there = gpt2_trainer(*gpu, training);
    const StateBytes before = states_of(there, is_no_loss_scale);
    const float expected = here.evaluate({batch.tokens, batch.targets}).loss,
                loss = there.evaluate({batch.tokens, batch.targets}).loss;
    EXPECT_NEAR(loss, expected, 2e-5);  // trains_alike.h
    EXPECT_EQ(there.evaluate({batch.tokens, batch.targets}).loss, loss);
    EXPECT_TRUE(states_of(there, is_no_loss_scale) == before);
    EXPECT_TRUE(there.step({batch.tokens, batch.targets}, 1e-3).applied);
    EXPECT_GT(std::abs(there.evaluate({batch.tokens, batch.targets}).loss - loss), 1e-3F) << "a step is seen";
}

struct GeneratingModel {
    nn::Gpt2Config config = small_gpt2_training("fp32").model;
    nn::LanguageModel language;
    std::unique_ptr<StateBlock> parameters;

    explicit GeneratingModel(Device& device)
        : language(nn::gpt2_language_model(config)),
          parameters(testing::tenfold_parameters(device, language)) {}
};

std::vector<std::int32_t> sixteen_tokens() { return SomeTokens(16).tokens; }

/// The scores [V] behind each of the last tokens, kept keys and values included, one after the other.
std::vector<float> scores_on(Device& device, const GeneratingModel& model, const char* policy) {
    const std::vector<std::int32_t> text = sixteen_tokens();
    constexpr std::size_t prompt = 5;
    TokenGenerator generator(device, model.language, prompt, find_policy(policy));
    generator.allocate(*model.parameters);
    std::vector<float> all = generator.prompt(std::span(text).first(prompt));
    for (std::size_t at = prompt; at < text.size(); ++at) {
        const std::vector<float> more = generator.next(text[at]);
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

/// The same scores in FP64, of the whole sequence at once.
std::vector<double> exact_scores(const GeneratingModel& model) {
    const std::vector<std::int32_t> text = sixteen_tokens();
    Graph graph;
    const Tensor input(graph,
                       graph.add_input("tokens", {DType::i32, {1, static_cast<std::int64_t>(text.size())}}));
    graph.add_result("logits", nn::gpt2_logits(model.config, input).value());
    ReferenceFeed feed{{"tokens", {text.begin(), text.end()}}};
    for (const State& state : model.parameters->states()) {
        const std::vector<float> values = model.parameters->read_f32(state.name);
        feed[state.name] = {values.begin(), values.end()};
    }
    std::vector<double> scores = ReferenceRun(graph, feed).result("logits").values;
    scores.erase(scores.begin(), scores.begin() + 4 * model.config.vocabulary);
    return scores;
}

TEST_F(CudaUses, GeneratingScoresAsTheCpuDoes) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    const GeneratingModel here(*cpu), there(*gpu);
    const std::vector<double> exact = exact_scores(here);
    for (const char* const policy : {"fp32", "bf16"}) {
        // The same sums in another order: the CPU's error is the measure, and twice that the class.
        const double allowed = 2 * largest_difference(scores_on(*cpu, here, policy), exact);
        EXPECT_LE(largest_difference(scores_on(*gpu, there, policy), exact), allowed) << policy;
        // A tenth of the largest score would be no measure.
        EXPECT_LT(allowed, *std::ranges::max_element(exact) / 10) << policy;
    }
}

/// Quantised weights: few rows by one kernel, a prompt by others, and texts at once by both. The formats
/// beside them are those of BF16, whose sums have another order on a GPU.
TEST_F(CudaUses, QuantisedModelsGenerateAsOnTheCpu) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    const GeneratingModel here(*cpu), there(*gpu);
    const std::vector<double> exact = exact_scores(here);
    double before = largest_difference(scores_on(*cpu, here, "bf16"), exact);
    for (const char* const policy : {"int8", "int4"}) {
        const double of_cpu = largest_difference(scores_on(*cpu, here, policy), exact);
        EXPECT_LE(largest_difference(scores_on(*gpu, there, policy), exact), 2 * of_cpu) << policy;
        EXPECT_GT(of_cpu, before) << "fewer bits show";
        ASSERT_TRUE(std::isfinite(of_cpu));
        before = of_cpu;
    }
    const std::int64_t lengths[] = {3};
    for (const char* const policy : {"int8", "int4"}) {
        TokenGenerator generator(*gpu, there.language, lengths, find_policy(policy), 2);
        generator.allocate(*there.parameters);
        const std::uint64_t seeds[] = {0, 1};
        const std::vector<std::vector<std::int32_t>> prompts{{5, 40, 301}, {7, 8, 9}};
        for (const Generated& text : generate_together(generator, prompts, seeds, {.length = 6},
                                                       [](std::size_t, std::int32_t) { return true; }))
            EXPECT_EQ(text.tokens.size(), 6U) << policy;
    }
}

TEST_F(CudaUses, TextsFollowFromModelPromptAndSeed) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    const GeneratingModel here(*cpu), there(*gpu);
    const std::vector<std::vector<std::int32_t>> prompts{{5, 40, 301}, {7, 8, 9}};
    const auto texts = [&](Device& device, const GeneratingModel& model) {
        const std::int64_t lengths[] = {3};
        TokenGenerator generator(device, model.language, lengths, find_policy("fp32"), 2);
        generator.allocate(*model.parameters);
        const std::uint64_t seeds[] = {0, 1};
        std::vector<std::vector<std::int32_t>> all;
        for (const Generated& text : generate_together(generator, prompts, seeds, {.length = 10},
                                                       [](std::size_t, std::int32_t) { return true; }))
            all.push_back(text.tokens);
        return all;
    };
    const auto on_gpu = texts(*gpu, there);
    EXPECT_EQ(on_gpu[0].size(), 10U);
    EXPECT_NE(on_gpu[0], on_gpu[1]);
    EXPECT_EQ(texts(*gpu, there), on_gpu);
    EXPECT_EQ(texts(*cpu, here), on_gpu);  // no draw is so close that the last bits of scores decide it
}

/// Whole windows, in the formats of a policy.
TEST_F(CudaUses, PerplexityIsThatOfTheCpu) {
    const auto cpu = a_cpu();
    const TestedGpu gpu;
    const GeneratingModel here(*cpu), there(*gpu);
    const std::vector<std::int32_t> text = SomeTokens(40).tokens;
    const auto loss = [&](Device& device, const GeneratingModel& model, const char* policy) {
        return perplexity(device, model.language, find_policy(policy), *model.parameters,
                          {.stream = TokenStream(text)})
            .loss;
    };
    const double exact = loss(*cpu, here, "fp32");
    const double in_fp32 = loss(*gpu, there, "fp32"), in_bf16 = loss(*gpu, there, "bf16");
    EXPECT_NEAR(in_fp32, exact, 2e-6 * exact);  // as sums of FP32 in another order may differ, trains_alike.h
    EXPECT_NEAR(in_bf16, exact, 0x1p-8 * exact);
    EXPECT_GT(std::abs(in_bf16 - exact), 2e-6 * exact) << "the tolerance of FP32 tells BF16 from it";
    // Whole windows are many rows: the library's products in eight bits. Weights and activations that are
    // rounded alike leave what BF16 does differently, which is below what quantising did.
    for (const char* const policy : {"int8", "int4"}) {
        const double of_cpu = loss(*cpu, here, policy);
        EXPECT_NEAR(loss(*gpu, there, policy), of_cpu, 0x1p-8 * exact) << policy;
        EXPECT_NE(of_cpu, in_bf16) << policy;
    }
}

}  // namespace
}  // namespace mantissa
