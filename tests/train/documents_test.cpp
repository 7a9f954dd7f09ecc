// Packed documents: those of one sequence train as if each were run alone, whatever the sequences and
// micro-batches that they lie in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/packed_documents.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/gradients.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2.h"
#include "tests/support/largest_difference.h"
#include "tests/support/random_draws.h"

namespace mantissa {
namespace {

using Tokens = std::vector<std::int32_t>;
using Lengths = std::vector<std::size_t>;

constexpr std::int64_t packed_vocabulary = 41, packed_context = 150;
constexpr std::int32_t end_of_text = 0;

/// Three heads of eight; LLaMA's share two of keys.
nn::LanguageModel packed_gpt2() {
    return nn::gpt2_language_model({.name = "small",
                                    .layers = 2,
                                    .heads = 3,
                                    .channels = 24,
                                    .vocabulary = packed_vocabulary,
                                    .context = packed_context,
                                    .dropout = 0});
}
nn::LanguageModel packed_llama() {
    return nn::decoder_language_model({.name = "small",
                                       .parts = {.layers = 2,
                                                 .heads = 4,
                                                 .key_heads = 2,
                                                 .head_size = 8,
                                                 .channels = 24,
                                                 .hidden = 40,
                                                 .vocabulary = packed_vocabulary,
                                                 .context = packed_context}});
}

/// Layers with and without a window, which turn by other angles.
nn::LanguageModel packed_gemma3() {
    nn::DecoderConfig config =
        nn::with_sizes(nn::decoder_config("gemma3-270m"), {.layers = 2,
                                                           .heads = 4,
                                                           .channels = 32,
                                                           .context = packed_context,
                                                           .vocabulary = packed_vocabulary});
    config.parts.windowed = {true, false};
    config.parts.window = 20;
    return nn::decoder_language_model(config);
}

nn::LanguageModel packed_model(const std::string& name) {
    return name == "gpt2" ? packed_gpt2() : name == "llama" ? packed_llama() : packed_gemma3();
}

/// A document of so many tokens, the last of which ends it.
Tokens document(std::size_t length, std::size_t which) {
    Tokens tokens(length, end_of_text);
    for (std::size_t i = 0; i + 1 < length; ++i)
        tokens[i] = static_cast<std::int32_t>(1 + (i * i * 7 + i * 3 + which * 11) % (packed_vocabulary - 1));
    return tokens;
}

/// The inputs of a step.
struct Given {
    Tokens tokens = {}, targets = {}, documents = {}, positions = {};
    std::vector<float> counted = {};

    Batch batch() const {
        return counted.empty() ? Batch{tokens, targets}
                               : Batch{tokens, targets, documents, positions, counted};
    }
};

/// Sequences [B, T] of documents that fill them; targets behind the end of a sequence begin a document.
Given packed(const std::vector<Lengths>& sequences) {
    Given given;
    std::size_t which = 0, ends = 0;
    for (const Lengths& lengths : sequences) {
        for (const std::size_t length : lengths) {
            const Tokens next = document(length, which++);
            given.tokens.insert(given.tokens.end(), next.begin(), next.end());
        }
        ends += lengths.size();
    }
    const std::size_t count = given.tokens.size();
    given.targets.assign(given.tokens.begin() + 1, given.tokens.end());
    given.targets.push_back(1);
    given.documents.resize(count), given.positions.resize(count);
    const DocumentEnds places(TokenStream(given.tokens), {{end_of_text}});
    for (std::size_t begin = 0; begin < count; begin += packed_context)
        tell_documents_apart({.targets = std::span(given.targets).subspan(begin, packed_context),
                              .documents = std::span(given.documents).subspan(begin, packed_context),
                              .positions = std::span(given.positions).subspan(begin, packed_context)},
                             places.within({begin, begin + packed_context}), begin);
    given.counted.assign(sequences.size(), static_cast<float>(count - ends));
    return given;
}

/// One document alone: all its tokens but the last, with those that follow for targets.
Given alone(std::size_t length, std::size_t which) {
    const Tokens tokens = document(length, which);
    return {.tokens = {tokens.begin(), tokens.end() - 1}, .targets = {tokens.begin() + 1, tokens.end()}};
}

/// The loss and the gradients of all parameters by name; or a sum of such.
struct LossAndGradients {
    std::map<std::string, std::vector<double>> all = {};

    void add(const LossAndGradients& other, double share) {
        for (const auto& [name, values] : other.all) {
            std::vector<double>& sum = all[name];
            sum.resize(values.size());
            for (std::size_t i = 0; i < values.size(); ++i) sum[i] += share * values[i];
        }
    }
    /// The largest difference in units of the tensor's largest expected element.
    double error(const LossAndGradients& expected) const {
        double worst = 0;
        EXPECT_EQ(all.size(), expected.all.size());
        for (const auto& [name, values] : expected.all) {
            SCOPED_TRACE(name);
            const std::vector<double>& got = all.at(name);
            double largest = 0;
            for (const double value : values) largest = std::max(largest, std::abs(value));
            worst = std::max(worst, testing::largest_difference(got, values) / largest);
        }
        return worst;
    }
};

class PackedDocumentsTrain : public ::testing::TestWithParam<const char*> {
  protected:
    nn::LanguageModel model_ = packed_model(GetParam());
    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});

    Trainer trainer(const nn::Model& model, std::int64_t batch, const char* policy,
                    std::int64_t accumulate = 1) {
        TrainerOptions options{.batch = batch, .accumulate = accumulate};
        options.policy = find_policy(policy);
        return Trainer(*device_, model, options);
    }

    /// The results of a step with every pass, of the weights that every trainer begins with.
    LossAndGradients step(const nn::Model& model, const Given& given, const char* policy) {
        const auto batch = static_cast<std::int64_t>(given.tokens.size()) / model.units_per_example;
        Trainer trainer = this->trainer(model, batch, policy);
        const Plan& plan = trainer.plan().step();
        // A document alone may take less time as lines.
        EXPECT_TRUE(model.units_per_example < packed_context || !plan.kernels_of("attention").empty())
            << "attention is not found";
        EXPECT_FALSE(plan.kernels_of("linear_cross_entropy").empty())
            << "the fused linear cross-entropy is not found";
        LossAndGradients results;
        const StepResult made = trainer.step_run_by(given.batch(), 1e-3, [&](Execution& each, bool) {
            run_showing_gradients(each, [&](const std::string& parameter, Value value) {
                std::vector<double>& numbers = results.all[parameter];
                each.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
                    std::vector<float> piece(bytes.size() / sizeof(float));
                    std::memcpy(piece.data(), bytes.data(), bytes.size());
                    numbers.insert(numbers.end(), piece.begin(), piece.end());
                    return true;
                });
            });
        });
        results.all["loss"] = {static_cast<double>(made.loss)};
        return results;
    }

    /// The same by the reference, in FP64.
    LossAndGradients reference(const nn::Model& model, const Given& given) {
        const Trainer weights = trainer(model, 1, "fp32");
        Graph graph;
        const Tensor loss = nn::trace_loss(model, graph, 1);
        graph.add_result("loss", loss.value());
        for (const ParameterGradient& parameter : differentiate(graph, loss))
            graph.add_result(graph.states()[static_cast<std::size_t>(parameter.state)].name,
                             parameter.gradient.value());
        ReferenceFeed feed;
        for (const State& state : graph.states()) {
            const std::vector<float> values = weights.state().read_f32(state.name);
            feed[state.name] = {values.begin(), values.end()};
        }
        feed["tokens"] = {given.tokens.begin(), given.tokens.end()};
        feed["targets"] = {given.targets.begin(), given.targets.end()};
        const ReferenceRun run(graph, feed);
        LossAndGradients results;
        for (const Result& result : graph.results())
            results.all[result.name] = run.result(result.name).values;
        return results;
    }

    /// The results of documents that are run one by one, each as often as it has targets.
    template <class Run>
    LossAndGradients apart(const std::vector<Lengths>& sequences, Run run) {
        double targets = 0;
        for (const Lengths& lengths : sequences)
            for (const std::size_t length : lengths) targets += static_cast<double>(length - 1);
        LossAndGradients sum;
        std::size_t which = 0;
        for (const Lengths& lengths : sequences)
            for (const std::size_t length : lengths) {
                const Given given = alone(length, which++);
                const nn::Model model = model_.on_sequences(static_cast<std::int64_t>(length - 1));
                sum.add(run(model, given), static_cast<double>(length - 1) / targets);
            }
        return sum;
    }
};

INSTANTIATE_TEST_SUITE_P(Models, PackedDocumentsTrain, ::testing::Values("gpt2", "llama", "gemma3"),
                         [](const auto& each) { return std::string(each.param); });

/// Two sequences whose documents end elsewhere, and one; documents of two tokens have one target.
const std::vector<std::vector<Lengths>> packings = {{{61, 89}, {2, 17, 131}}, {{61, 89}}};

TEST_P(PackedDocumentsTrain, AsTheyDoApart) {
    const nn::Model model = model_.on_packed_documents(packed_context);
    for (const std::vector<Lengths>& sequences : testing::some_of(packings, 2)) {
        SCOPED_TRACE(::testing::Message() << sequences.size() << " sequences");
        const Given given = packed(sequences);
        const LossAndGradients exact =
            apart(sequences, [&](const nn::Model& one, const Given& of) { return reference(one, of); });
        const auto separate = [&](const char* policy) {
            return apart(sequences,
                         [&](const nn::Model& one, const Given& of) { return step(one, of, policy); });
        };
        const LossAndGradients together = step(model, given, "fp32");
        EXPECT_LE(together.error(exact), 1e-5);
        EXPECT_LE(together.error(separate("fp32")), 1e-5);
        // In BF16 no further from FP64 than twice what they are apart.
        const double rounding = separate("bf16").error(exact);
        EXPECT_GT(rounding, 1e-4);
        EXPECT_LE(step(model, given, "bf16").error(exact), 2 * rounding);
        // Each of what tells documents apart matters.
        const auto error_of = [&](auto alter) {
            Given altered = given;
            alter(altered);
            return step(model, altered, "fp32").error(exact);
        };
        EXPECT_GT(error_of([](Given& g) { std::ranges::fill(g.documents, 0); }), 1e-3);
        EXPECT_GT(error_of([](Given& g) { std::ranges::replace(g.targets, -1, 1); }), 1e-3);
        EXPECT_GT(error_of([](Given& g) { g.counted.assign(g.counted.size(), g.counted[0] + 1); }), 1e-3);
        // LLaMA's attention knows distances alone, so a shift of all positions is none.
        const auto shift = [](Given& g) {
            for (std::size_t i = 0; i < g.positions.size(); ++i)
                g.positions[i] = static_cast<std::int32_t>(i % packed_context);
        };
        if (GetParam() == std::string("gpt2")) {
            EXPECT_GT(error_of(shift), 1e-3);
        }
    }
}

TEST_P(PackedDocumentsTrain, AnOnlyDocumentHasTheBitsOfASequence) {
    Given given = packed({{packed_context}});
    given.tokens.back() = 1;  // it goes on behind the sequence, so that every target counts
    given.targets.back() = 2;
    given.counted = {packed_context};
    for (const char* policy : {"fp32", "bf16"})
        EXPECT_EQ(step(model_.on_packed_documents(packed_context), given, policy).all,
                  step(model_.on_sequences(packed_context),
                       {.tokens = given.tokens, .targets = given.targets}, policy)
                      .all)
            << policy;
}

TEST_P(PackedDocumentsTrain, AStepsLossIsTheMeanOfItsTargetsHoweverItIsCut) {
    Tokens text;
    for (std::size_t which = 0; text.size() < 6 * packed_context + 1; ++which) {
        const Tokens next = document(2 + which * 29 % 97, which);
        text.insert(text.end(), next.begin(), next.end());
    }
    const TokenStream stream(text);
    const DocumentEnds ends(stream, {{end_of_text}});
    const nn::Model model = model_.on_packed_documents(packed_context);
    const auto losses = [&](std::int64_t batch, std::int64_t accumulate) {
        Trainer trainer = this->trainer(model, batch, "fp32", accumulate);
        const PackedDocuments source(stream, ends, stream.all(), packed_context,
                                     {.batch = batch, .accumulate = accumulate});
        BatchBuffer buffer(model, batch, accumulate);
        std::vector<StepResult> results;
        for (std::uint64_t i = 0; i < 2; ++i) results.push_back(trainer.step(buffer.fill(source, i), 1e-3));
        return results;
    };
    const std::vector<StepResult> whole = losses(6, 1);
    for (const std::int64_t micro_batches : {2, 3, 6}) {
        const std::vector<StepResult> cut = losses(6 / micro_batches, micro_batches);
        for (std::size_t i = 0; i < whole.size(); ++i) {
            EXPECT_NEAR(cut[i].loss, whole[i].loss, 1e-5 * whole[i].loss) << micro_batches;
            EXPECT_NEAR(cut[i].gradient_norm, whole[i].gradient_norm, 1e-5 * whole[i].gradient_norm);
        }
    }
}

}  // namespace
}  // namespace mantissa
