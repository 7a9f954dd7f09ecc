// Networks of one's own go through all that GPT-2 goes through: training under every policy, the ladder,
// precisions compared, numbers looked at, steps explained, sizes linted, runs stopped and resumed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/report/converge.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/lint.h"
#include "mantissa/report/numerics.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/memory_fit.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/own_models.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

struct Case {
    nn::Model model;
    Examples (*batches)(const nn::Model&, const BatchOptions&);
};

std::vector<Case> cases() { return {{image_mlp(), batches_of_images}, {two_losses(), batches_of_points}}; }

TEST(AnyModel, LearnsUnderEveryPolicyWithAllPasses) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& each : cases())
        for (const std::string& policy : policy_names()) {
            const TrainerOptions options{.batch = 16, .policy = policy};
            if (options.policy.blocks && each.model.name == "mlp") {  // of a first layer and a head
                EXPECT_THROW(Trainer(*device, each.model, options), UserError) << policy;
                continue;
            }
            const Examples source = each.batches(each.model, {.batch = 16});
            BatchBuffer buffer(each.model, 16);
            Trainer trainer(*device, each.model, options);
            const float before = trainer.evaluate(buffer.fill(source, 0)).loss;
            for (std::uint64_t step = 0; step < 60; ++step) trainer.step(buffer.fill(source, step), 1e-2);
            EXPECT_LT(trainer.evaluate(buffer.fill(source, 0)).loss, 0.6f * before)
                << each.model.name << " under " << policy;
        }
}

TEST(AnyModel, ClimbsTheLadderAndSaysWhichRungsDoNotApply) {
    const auto device = make_cpu_device({.threads = 2});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    for (const Case& each : cases()) {
        const LadderOptions options{
            .rungs = ladder_rungs(), .model = each.model, .trainer = {.batch = 16}, .repeats = 1};
        const LadderReport report = run_ladder(*device, each.batches(each.model, {.batch = 16}), options);
        // Neither has attention; the sum of two losses is no cross-entropy of a linear layer.
        std::vector<std::string> skipped;
        for (const SkippedRung& rung : report.skipped) skipped.push_back(rung.name);
        EXPECT_EQ(skipped.front(), "flash");
        EXPECT_EQ(report.rungs.size() + skipped.size(), ladder_rungs().size());
        EXPECT_EQ(report.rungs[0].losses.size(), 5u);
        EXPECT_GT(report.rungs[0].mfu, 0);
        const std::string table = ladder_table(report);
        EXPECT_NE(table.find("flash     does not apply: " + each.model.name + " has no attention"),
                  std::string::npos)
            << table;
        EXPECT_NE(table.find(each.model.unit + "/s"), std::string::npos) << table;
        EXPECT_NE(table.find("16 " + each.model.unit + " a step"), std::string::npos) << table;
        const auto json = nlohmann::json::parse(ladder_json(report));
        EXPECT_GT(json["rungs"][0][each.model.unit + "_per_second"], 0);
        EXPECT_EQ(json["skipped"][0]["name"], "flash");
    }
}

TEST(AnyModel, IsComparedInEveryPrecision) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& each : cases()) {
        ConvergeOptions options{.policies = {}, .model = each.model, .trainer = {.batch = 16}, .steps = 8};
        for (const std::string& policy : sixteen_bit_policy_names())
            options.policies.push_back(find_policy(policy));
        const ConvergeReport report = run_converge(*device, each.batches(each.model, {.batch = 16}), options);
        for (const ConvergedRun& run : report.runs) EXPECT_TRUE(run.agrees()) << run.policy;
        EXPECT_NE(converge_table(report).find("16 " + each.model.unit + " a step"), std::string::npos);
    }
}

TEST(AnyModel, IsLookedAtExplainedAndLinted) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& each : cases()) {
        const Examples source = each.batches(each.model, {.batch = 16});
        BatchBuffer buffer(each.model, 16);
        Trainer trainer(*device, each.model, {.batch = 16, .loss_scale = traced_loss_scale()});
        const NumericsReport numbers = measure_numerics(trainer, buffer.fill(source, 0));
        EXPECT_EQ(numbers.weights.all.numbers() + numbers.weights.all.zeros(),
                  trainer.plan().facts().parameters);
        EXPECT_GT(numbers.gradients.all.numbers(), 0);

        Profile profile;
        const StepResult result = trainer.step(buffer.fill(source, 0), 1e-3, &profile);
        const Roofline roof = roofline(trainer.plan().step(), profile,
                                       {.f32_fma = 1e11, .bf16_matrix = 0, .copy = 1e10}, result.seconds);
        EXPECT_EQ(roof.entries.size(), trainer.plan().step().nodes().size());

        Explanation explanation = explain(trainer.plan().step(), trainer.plan().pipeline());
        explanation.model = reported(each.model, trainer.plan().facts(), 16);
        EXPECT_EQ(explanation.title(),
                  each.model.name + " at 16 " + each.model.unit + ", policy fp32: one training step");
        EXPECT_NE(explain_table(explanation, Detail::nodes).find("f32*f32+f32"), std::string::npos);

        const auto trace = [&](Graph& graph) { return nn::trace_loss(each.model, graph, 15); };
        const auto findings = lint(build_evaluation(trace).graph, device->target());
        ASSERT_FALSE(findings.empty());
        EXPECT_EQ(findings.back().rule->size, "batch");

        const auto fits = what_would_fit(trainer.plan(), 1 << 30);
        ASSERT_FALSE(fits.empty());
        EXPECT_TRUE(fits.back().fits);
    }
}

std::vector<std::vector<std::byte>> states(const Trainer& trainer) {
    std::vector<std::vector<std::byte>> values;
    for (const State& state : trainer.state().states()) values.push_back(trainer.state().read(state.name));
    return values;
}

TEST(AnyModel, IsResumedToTheSameBits) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Case& each : cases())
        for (const char* policy : {"fp32", "bf16", "fp16"}) {
            const TrainerOptions options{.batch = 8, .accumulate = 2, .policy = policy};
            const Examples source = each.batches(
                each.model, {.batch = 8, .accumulate = 2, .order = BatchOrder::random, .seed = 3});
            BatchBuffer buffer(each.model, 8, 2);
            const auto train = [&](Trainer& trainer, std::int64_t last) {
                while (trainer.steps_done() < last)
                    trainer.step(buffer.fill(source, static_cast<std::uint64_t>(trainer.steps_done())), 1e-2);
            };
            Trainer whole(*device, each.model, options), first(*device, each.model, options),
                second(*device, each.model, options);
            train(whole, 9);
            train(first, 4);
            const TemporaryDirectory directory;
            save_training(directory / "run", first);
            EXPECT_EQ(resume_training(directory / "run", second).warning, "");
            train(second, 9);
            EXPECT_TRUE(states(second) == states(whole)) << each.model.name << " under " << policy;
        }
}

TEST(AnyModel, OfAnotherConfigurationIsNotResumed) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer saved(*device, image_mlp(0.1), {.batch = 4}), other(*device, image_mlp(0.3), {.batch = 4});
    save_training(directory / "run", saved);
    try {
        resume_training(directory / "run", other);
        FAIL() << "another dropout was resumed";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("model.dropout = 0.1, this run has 0.3; give the same"),
                  std::string::npos)
            << error.what();
    }
}

/// The fault, in one line.
std::string refusal(const nn::Model& model, const Batch& batch) {
    const auto device = make_cpu_device({.threads = 1});
    const std::string fault =
        testing::error_of([&] { Trainer(*device, model, {.batch = 2}).step(batch, 1e-3); });
    EXPECT_EQ(fault.find('\n'), std::string::npos);
    return fault;
}

TEST(AnyModel, ThatIsNoneIsRefusedInOneLine) {
    const std::vector<float> pixels(2 * 64), few(64);
    const std::vector<std::int32_t> classes(2);
    const std::vector<double> wide(2 * 64);
    const nn::Model good = image_mlp();
    EXPECT_EQ(refusal(good, {pixels}), "model mlp takes 2 inputs, got 1; 'classes' is missing");
    EXPECT_EQ(refusal(good, {few, classes}),
              "model mlp: input 'pictures' of a step has 2 examples of f32[8, 8], 128 numbers, got 64");
    EXPECT_EQ(refusal(good, {wide, classes}), "model mlp: input 'pictures' is f32, got f64");
    EXPECT_EQ(refusal(good, {pixels, classes, few}), "model mlp takes 2 inputs, got 3");

    nn::Model no_loss = good;
    no_loss.loss = nullptr;
    EXPECT_EQ(refusal(no_loss, {pixels, classes}),
              "model mlp has no loss: set Model::loss to a function that records it");
    nn::Model vector_loss = good;
    vector_loss.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        return sum(inputs[0], {1, 2});
    };
    EXPECT_EQ(refusal(vector_loss, {pixels, classes}),
              "model mlp: its loss must be one floating number, got f32[2]; take the mean");
    nn::Model same_names = good;
    same_names.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        const Tensor x = reshape(inputs[0], {-1, 64});
        return mean(nn::linear(x, "layer", {.outputs = 4}) + nn::linear(x, "layer", {.outputs = 4}), {0, 1});
    };
    EXPECT_EQ(
        refusal(same_names, {pixels, classes}).find("there are two states named 'layer.weight': the first"),
        0u);
    nn::Model no_parameters = good;
    no_parameters.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        return mean(inputs[0], {0, 1, 2});
    };
    EXPECT_EQ(refusal(no_parameters, {pixels, classes}),
              "model mlp has no parameters, so there is nothing to train");
    nn::Model twice = good;
    twice.inputs[1].name = "pictures";
    EXPECT_EQ(refusal(twice, {pixels, classes}), "model mlp: two inputs are called 'pictures'");
    nn::Model reserved = good;
    reserved.inputs[1].name = "learning_rate";
    EXPECT_EQ(
        refusal(reserved, {pixels, classes}),
        "model mlp: an input of it is called 'learning_rate', as one that training adds; give it another "
        "name than learning_rate, random_seed, random_step");
}

TEST(AnyModel, ExamplesThatDoNotFitAreRefused) {
    const nn::Model model = image_mlp();
    const auto says = [&](const Batch& all, const BatchOptions& options) {
        return testing::error_of([&] { Examples(model, all, options); });
    };
    const std::vector<float> pixels(5 * 64);
    const std::vector<std::int32_t> five(5), four(4);
    EXPECT_EQ(says({pixels, four}, {.batch = 2}),
              "model mlp: input 'classes' of a step has 5 examples of i32[], 5 numbers, got 4");
    EXPECT_EQ(says({pixels, five}, {.batch = 3, .accumulate = 2}),
              "model mlp: 5 examples, but a step takes 6; give more, or lower the batch");
    EXPECT_EQ(says({pixels, five}, {.batch = 3, .accumulate = 2, .order = BatchOrder::random}), "no error");
}

}  // namespace
}  // namespace mantissa
