// Metrics: results that a loss's trace names beside the loss, as means over the rows of a step or evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

constexpr std::int64_t features = 3, classes = 4;

Tensor scores(Tensor x) {
    return nn::linear(x, "scores", {.outputs = classes, .standard_deviation = 1}) *
           nn::parameter(x.graph(), "temperature", {}, {.mean = 1.5});
}

/// Names a bool and a number of each row, the mean of a matrix, and a parameter as it stands.
nn::Model with_metrics() {
    return {.name = "named",
            .inputs = {{"x", DType::f32, {features}}, {"class", DType::i32}},
            .loss =
                [](Tensor x, Tensor id) {
                    const Tensor y = scores(x);
                    nn::metric("accuracy", equal(argmax(y, 1), id));
                    nn::metric("largest", max(abs(x), {1}));
                    nn::metric("features", x);
                    nn::metric("temperature", nn::parameter(x.graph(), "of_no_use", {}, {.mean = 2.5}));
                    return cross_entropy(y, id);
                },
            .output = {.trace = scores}};
}

struct ClassRows {
    std::vector<float> x;
    std::vector<std::int32_t> id;
    explicit ClassRows(std::int64_t count) {
        for (std::int64_t i = 0; i < count * features; ++i)
            x.push_back(std::sin(1.3f * static_cast<float>(i + 1)));
        for (std::int64_t i = 0; i < count; ++i) id.push_back(static_cast<std::int32_t>(i * i % classes));
    }
    /// A rank's half.
    Batch half(int rank) const {
        const auto of = [&](const auto& values) {
            return std::span(values).subspan(static_cast<std::size_t>(rank) * values.size() / 2,
                                             values.size() / 2);
        };
        return {of(x), of(id)};
    }
};

/// On the host, from the scores that a predictor gives.
std::map<std::string, double> expected(Predictor& predictor, const ClassRows& rows) {
    double largest = 0, sum = 0;
    for (std::size_t i = 0; i < rows.id.size(); ++i) {
        double of_row = 0;
        for (std::size_t j = 0; j < features; ++j) {
            sum += static_cast<double>(rows.x[features * i + j]);
            of_row = std::max(of_row, std::abs(static_cast<double>(rows.x[features * i + j])));
        }
        largest += of_row;
    }
    const auto count = static_cast<double>(rows.id.size());
    return {{"accuracy", accuracy(predictor.predict({rows.x}), rows.id)},
            {"largest", largest / count},
            {"features", sum / count / features},
            {"temperature", 2.5}};
}

void expect_metrics(const Metrics& metrics, const std::map<std::string, double>& wanted) {
    EXPECT_EQ(metrics.by_name.size(), wanted.size());
    for (const auto& [name, value] : wanted)
        EXPECT_NEAR(static_cast<double>(metrics[name]), value, 1e-6) << name;
}

TEST(Metrics, OfStepsAreMeansOverAllRowsOfAllMicroBatches) {
    const auto device = make_cpu_device({.threads = 2});
    const ClassRows rows(12);
    for (const char* policy : {"fp32", "bf16"})
        for (const std::int64_t accumulate : {1, 2, 3, 4}) {
            Trainer trainer(*device, with_metrics(),
                            {.batch = 12 / accumulate, .accumulate = accumulate, .policy = policy});
            Predictor predictor(trainer);
            for (int step = 0; step < 4; ++step) {
                SCOPED_TRACE(std::string(policy) + ", " + std::to_string(accumulate) +
                             " micro-batches, step " + std::to_string(step));
                const auto before = expected(predictor, rows);
                expect_metrics(trainer.step({rows.x, rows.id}, 0.5).metrics, before);
            }
            const auto before = expected(predictor, rows);
            trainer.gradients({rows.x, rows.id});
            expect_metrics(trainer.update(0.5).metrics, before);
        }
}

TEST(Metrics, OfRanksAreMeansOverTheRowsOfAll) {
    const auto device = make_cpu_device({.threads = 1});
    const ClassRows rows(12);
    Trainer alone(*device, with_metrics(), {.batch = 12});
    Predictor predictor(alone);
    const auto before = expected(predictor, rows);
    for (const Wire wire : {Wire::fp32, Wire::bf16})
        for (const std::int64_t accumulate : {1, 3})
            testing::run_good_ranks(2, [&](Ranks& ranks) {
                const auto own = make_cpu_device({.threads = 1, .ranks = &ranks});
                Trainer trainer(
                    *own, with_metrics(),
                    {.batch = 6 / accumulate, .accumulate = accumulate, .ranks = &ranks, .wire = wire});
                expect_metrics(trainer.step(rows.half(ranks.rank()), 0.5).metrics, before);
            });
}

TEST(Metrics, OfAnEvaluationAreOfAnyNumberOfRows) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer trainer(*device, with_metrics(), {.batch = 8, .accumulate = 2});
    Predictor predictor(trainer);
    for (const std::int64_t count : {1, 5, 8, 33}) {
        const ClassRows rows(count);
        const Evaluation evaluated = trainer.evaluate({rows.x, rows.id});
        expect_metrics(evaluated.metrics, expected(predictor, rows));
        EXPECT_GT(evaluated.loss, 0);
    }
}

TEST(Metrics, OfAGpuComeToTheHost) {
    if (const std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const testing::TestedGpu gpu;
    const ClassRows rows(12);
    Trainer trainer(*gpu, with_metrics(), {.batch = 4, .accumulate = 3});
    Predictor predictor(trainer);
    for (int step = 0; step < 2; ++step) {
        const auto before = expected(predictor, rows);
        expect_metrics(trainer.evaluate({rows.x, rows.id}).metrics, before);
        expect_metrics(trainer.step({rows.x, rows.id}, 0.5).metrics, before);
    }
}

std::vector<std::string> names_of_results(const Plan& plan) {
    std::vector<std::string> names;
    for (const Result& result : plan.graph().results()) names.push_back(result.name);
    return names;
}

TEST(Metrics, WithoutNamesAStepHasNothingMore) {
    const auto device = make_cpu_device({.threads = 1});
    nn::Model plain = with_metrics();
    plain.loss = [](Tensor x, Tensor id) { return cross_entropy(scores(x), id); };
    const TrainingPlan with(*device, with_metrics(), {.batch = 2, .accumulate = 2}),
        without(*device, plain, {.batch = 2, .accumulate = 2});
    EXPECT_EQ(names_of_results(without.step()),
              (std::vector<std::string>{"loss", "gradient_norm", "applied"}));
    EXPECT_EQ(names_of_results(with.step()).size(), 7U);
    EXPECT_LT(without.step().graph().size() + 4, with.step().graph().size());
    // A sum of each metric; and the parameter that one alone reads, its gradient and two moments.
    EXPECT_EQ(with.step().graph().states().size(), without.step().graph().states().size() + 4 + 4);
    Trainer trainer(*device, plain, {.batch = 2});
    const ClassRows rows(2);
    const StepResult step = trainer.step({rows.x, rows.id}, 0.1);
    EXPECT_TRUE(step.metrics.by_name.empty());
    EXPECT_EQ(testing::error_of<UserError>([&] { (void)step.metrics["accuracy"]; }),
              "the loss names no metric 'accuracy'; call nn::metric where it is recorded");
}

TEST(Metrics, WrongNamesAndTypesAreRefusedWhereTheyStand) {
    const auto device = make_cpu_device({.threads = 1});
    const auto said = [&](const std::function<void(Tensor, Tensor)>& named) {
        nn::Model model = with_metrics();
        model.loss = [named](Tensor x, Tensor id) {
            named(x, id);
            return cross_entropy(scores(x), id);
        };
        const std::string text = testing::error_of<UserError>([&] { Trainer(*device, model, {.batch = 2}); });
        const std::size_t line = text.find("metrics_test.cpp:");
        EXPECT_NE(line, std::string::npos) << text;
        return text.substr(0, text.find(" (traced")) + text.substr(text.find("): ") + 1);
    };
    EXPECT_EQ(said([](Tensor x, Tensor) { nn::metric("", x); }), "metric '': it has no name");
    EXPECT_EQ(said([](Tensor x, Tensor) { nn::metric("a", x), nn::metric("a", x); }),
              "metric 'a': the trace has one of this name");
    EXPECT_EQ(said([](Tensor, Tensor id) { nn::metric("ids", id); }),
              "metric 'ids': it is floating or bool, got i32[2]; cast it");
    Trainer trainer(*device, with_metrics(), {.batch = 2});
    const ClassRows rows(2);
    EXPECT_EQ(testing::error_of<UserError>([&] {
                  (void)trainer.evaluate({rows.x, rows.id}).metrics["acuracy"];
              }),
              "the loss names no metric 'acuracy'; there are accuracy, features, largest, temperature");
}

}  // namespace
}  // namespace mantissa
