// Attention of scores of every kind as the CPU runs it, over more than one block of queries and keys, at
// every level: o, the log-sum-exp and every gradient against the reference, and the same bits on any number
// of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "tests/support/attention_forms.h"

#include "mantissa/graph/graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::In;
using testing::levels;
using namespace testing::scoring;

/// One for all cases, lest each compile anew what another has.
Device& on_threads(const std::string& level, int threads) {
    static std::map<std::pair<std::string, int>, std::unique_ptr<Device>> devices;
    std::unique_ptr<Device>& device = devices[{level, threads}];
    if (!device) device = device_at(level, threads);
    return *device;
}

/// Work is cut by shapes, not by what scores are: of one size in FP32, and of one that AMX takes, threads are
/// compared.
enum class Threads { of_one_count, of_two_counts };

void expect_agreement(const Form& form, const Sizes& sizes, DType dtype, Threads threads) {
    const Case test(form, sizes, dtype);
    const ReferenceRun reference(test.graph, test.feed);
    for (const std::string& level : levels()) {
        SCOPED_TRACE(fmt::format("{}, {} {} at {}", form.name, sizes.text(), name_of(dtype), level));
        Device& device = on_threads(level, 2);
        for (std::size_t id = 0; id < test.graph.size(); ++id)
            if (const Node& node = test.graph.node(static_cast<NodeId>(id)); node.op->composite()) {
                ASSERT_TRUE(machine_for_passes(device).has_kernel(test.graph, node)) << node.op->name;
            }
        const auto results = testing::run(test.graph, test.feed, device);
        for (std::size_t i = 0; i < results.size(); ++i) {
            const Value value = test.graph.results()[i].value;
            const DType stored = test.graph.type(value).dtype;
            EXPECT_LE(testing::worst_ratio(errors_of(form, sizes, dtype, i >= 2), stored,
                                           testing::loaded(results[i], stored), reference[value].values),
                      1.0)
                << test.graph.results()[i].name;
        }
        if (threads == Threads::of_two_counts) {
            EXPECT_TRUE(testing::run(test.graph, test.feed, on_threads(level, 3)) == results)
                << "other bits on three threads";
        }
    }
}

// More than a block each way, none of them whole; one query; heads that share keys; more keys than queries.
const Sizes sizes_of_all[] = {{{1, 2, 131, 131, 8, 2}}, {{2, 4, 70, 150, 6, 2}}, {{1, 3, 1, 9, 8, 1}}};

/// Heads that AMX takes.
const Sizes size_of_tiles{{1, 2, 70, 83, 32, 1}};

struct ScoreCase {
    Sizes sizes;
    DType dtype;
    Threads threads;
};

const ScoreCase cases_of_all[] = {{sizes_of_all[0], DType::f32, Threads::of_two_counts},
                                  {size_of_tiles, DType::bf16, Threads::of_two_counts},
                                  {sizes_of_all[1], DType::f16, Threads::of_one_count},
                                  {sizes_of_all[1], DType::f32, Threads::of_one_count},
                                  {sizes_of_all[1], DType::bf16, Threads::of_one_count},
                                  {sizes_of_all[2], DType::f32, Threads::of_one_count}};

void expect_agreement(const std::vector<Form>& forms) {
    for (const Form& form : forms)
        for (const auto& [sizes, dtype, threads] : cases_of_all)
            expect_agreement(form, sizes, dtype, threads);
}

/// One of the cases for each form, by turns.
void expect_some_agreement(const std::vector<Form>& forms) {
    for (std::size_t i = 0; i < forms.size(); ++i) {
        const auto& [sizes, dtype, threads] = cases_of_all[i % std::size(cases_of_all)];
        expect_agreement(forms[i], sizes, dtype, threads);
    }
}

TEST(AttentionScores, MasksAgreeWithTheReference) { expect_some_agreement(masked_forms()); }

TEST(AttentionScores, FunctionsAgreeWithTheReference) { expect_some_agreement(function_forms()); }

TEST(AttentionScoresSlow, MasksAgreeWithTheReferenceInEveryCase) { expect_agreement(masked_forms()); }

TEST(AttentionScoresSlow, FunctionsAgreeWithTheReferenceInEveryCase) { expect_agreement(function_forms()); }

// Backward, the queries that see the first block of keys end within a tile of rows, and others follow.
TEST(AttentionScores, AWindowThatEndsWithinATileAgreesWithTheReference) {
    expect_agreement(window(40), {{1, 1, 150, 163, 32, 1}}, DType::bf16, Threads::of_two_counts);
}

TEST(AttentionScores, AnotherWindowIsNotWithinTheirErrors) {
    const Sizes sizes = sizes_of_all[0];
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const Case test(window(40), sizes, dtype), other(window(41), sizes, dtype);
        const ReferenceRun reference(test.graph, test.feed);
        const auto device = device_at(levels().back());
        const auto results = testing::run(other.graph, other.feed, *device);
        for (std::size_t i = 0; i < results.size(); ++i) {
            const Value value = test.graph.results()[i].value;
            const DType stored = test.graph.type(value).dtype;
            EXPECT_GT(testing::worst_ratio(errors_of(window(40), sizes, dtype, i >= 2), stored,
                                           testing::loaded(results[i], stored), reference[value].values),
                      1.0)
                << test.graph.results()[i].name;
        }
    }
}

TEST(AttentionScores, AWindowAsLargeAsTheTextHasPlainAttentionsBits) {
    const Form plain{.name = "plain"};
    for (const Sizes& sizes : sizes_of_all)
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const Case all(window(sizes.e.keys), sizes, dtype), none(plain, sizes, dtype);
            for (const std::string& level : levels()) {
                const auto device = device_at(level);
                EXPECT_TRUE(testing::run(all.graph, all.feed, *device) ==
                            testing::run(none.graph, none.feed, *device))
                    << sizes.text() << " at " << level;
            }
        }
}

TEST(AttentionScores, EnormousScoresUnderACapStayFinite) {
    const Form capped{.name = "capped", .build = [](Graph& body, Tensor s, In) {
                          result(body, "score", tanh(s * (1.0 / 30)) * 30.0);
                      }};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        Case test(capped, sizes_of_all[0], dtype);
        for (double& q : test.feed["q"]) q *= 0x1p96;
        for (const std::string& level : levels()) {
            const auto device = device_at(level);
            const auto results = testing::run(test.graph, test.feed, *device);
            for (std::size_t i = 0; i < results.size(); ++i)
                for (const double x :
                     testing::loaded(results[i], test.graph.type(test.graph.results()[i].value).dtype))
                    ASSERT_TRUE(std::isfinite(x)) << test.graph.results()[i].name << " at " << level;
        }
    }
}

}  // namespace
}  // namespace mantissa
