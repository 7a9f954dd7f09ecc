#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/data/permutation.h"
#include "mantissa/data/text_windows.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Token i of the stream is i, so that a batch shows where it was taken from.
TokenStream counting(std::int32_t size) {
    Tokens tokens(static_cast<std::size_t>(size));
    std::iota(tokens.begin(), tokens.end(), 0);
    return TokenStream(std::move(tokens), "text.txt");
}

struct Options {
    std::int64_t batch = 1, sequence = 1, accumulate = 1;
    BatchOrder order = BatchOrder::sequential;
    std::uint64_t seed = 0;
};

TextWindows windows(const TokenStream& stream, TokenRange range, const Options& options) {
    return {stream,
            range,
            options.sequence,
            {.batch = options.batch,
             .accumulate = options.accumulate,
             .order = options.order,
             .seed = options.seed}};
}

struct TextBatch {
    Tokens inputs, targets;
    bool operator==(const TextBatch&) const = default;
};

TextBatch batch_of(const TextWindows& source, const Options& options, std::uint64_t step,
                   std::int64_t micro) {
    const auto count = static_cast<std::size_t>(options.batch * options.sequence);
    TextBatch batch{Tokens(count, -1), Tokens(count, -1)};
    source.fill(step, micro, batch.inputs, batch.targets);
    return batch;
}

TEST(TextWindows, SequentialIsTheTextInOrder) {
    const TokenStream stream = counting(25);
    const Options options = {.batch = 2, .sequence = 3};
    const TextWindows source = windows(stream, stream.all(), options);
    EXPECT_EQ(source.steps_per_epoch(), 4u);  // 4 * 6 + 1 = 25
    EXPECT_EQ(batch_of(source, options, 0, 0), (TextBatch{{0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}}));
    EXPECT_EQ(batch_of(source, options, 3, 0),
              (TextBatch{{18, 19, 20, 21, 22, 23}, {19, 20, 21, 22, 23, 24}}));
    EXPECT_EQ(batch_of(source, options, 4, 0), batch_of(source, options, 0, 0));
    EXPECT_EQ(batch_of(source, options, 4'000'000'000'003, 0), batch_of(source, options, 3, 0));
    // One token fewer: the last batch and one token do not fit.
    const TextWindows shorter = windows(stream, {0, 24}, options);
    EXPECT_EQ(shorter.steps_per_epoch(), 3u);
    EXPECT_EQ(batch_of(shorter, options, 3, 0), batch_of(source, options, 0, 0));
}

TEST(TextWindows, MicroBatchesReadWhatOneStepReads) {
    const TokenStream stream = counting(1000);
    const Options whole = {.batch = 12, .sequence = 5};
    const TextWindows whole_source = windows(stream, {100, 1000}, whole);
    for (const std::int64_t accumulate : {2, 3, 4, 6, 12}) {
        const Options options = {.batch = 12 / accumulate, .sequence = 5, .accumulate = accumulate};
        const TextWindows source = windows(stream, {100, 1000}, options);
        for (std::uint64_t step : {0, 7, 14, 15, 99}) {
            Tokens inputs;
            for (std::int64_t micro = 0; micro < accumulate; ++micro)
                for (std::int32_t token : batch_of(source, options, step, micro).inputs)
                    inputs.push_back(token);
            EXPECT_EQ(inputs, batch_of(whole_source, whole, step, 0).inputs) << accumulate << " at " << step;
        }
    }
}

TEST(TextWindows, LecturesTextStartsOverAfterTwentySteps) {
    // The text of the 50-step run has 338,025 tokens; 16 x 1024 of them a step.
    const TokenStream stream = counting(338'025);
    const Options options = {.batch = 4, .sequence = 1024, .accumulate = 4};
    const TextWindows source = windows(stream, stream.all(), options);
    EXPECT_EQ(source.steps_per_epoch(), 20u);
    EXPECT_EQ(batch_of(source, options, 19, 3).inputs[0], (19 * 4 + 3) * 4096);
    EXPECT_EQ(batch_of(source, options, 20, 0).inputs[0], 0);
}

TEST(TextWindows, RandomReadsEachWindowOnceAnEpochAndCutsTheTextElsewhereInEach) {
    const TokenStream stream = counting(7 * 31 + 5);
    const Options options = {
        .batch = 3, .sequence = 7, .accumulate = 2, .order = BatchOrder::random, .seed = 11};
    const TokenRange range = {2, 7 * 31 + 3};
    const TextWindows source = windows(stream, range, options);
    constexpr std::int32_t count = 30;  // of windows in an epoch: one of 31 is left, to begin elsewhere
    std::vector<Tokens> epochs(1);      // the first token of each window, in order
    for (std::uint64_t step = 0; step < 100; ++step)
        for (std::int64_t micro = 0; micro < 2; ++micro) {
            const TextBatch batch = batch_of(source, options, step, micro);
            for (std::size_t row = 0; row < 3; ++row) {
                if (epochs.back().size() == count) epochs.emplace_back();
                epochs.back().push_back(batch.inputs[row * 7]);
                for (std::size_t t = 0; t < 7; ++t) {
                    EXPECT_EQ(batch.inputs[row * 7 + t],
                              batch.inputs[row * 7] + static_cast<std::int32_t>(t));
                    EXPECT_EQ(batch.targets[row * 7 + t], batch.inputs[row * 7 + t] + 1);
                    EXPECT_LT(batch.targets[row * 7 + t], static_cast<std::int32_t>(range.end));
                }
            }
        }
    ASSERT_EQ(epochs.size(), 20u);
    const std::set<Tokens> orders(epochs.begin(), epochs.end());
    EXPECT_EQ(orders.size(), epochs.size()) << "two epochs have the same order";
    std::set<std::int32_t> beginnings;
    for (Tokens epoch : epochs) {
        EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
        std::sort(epoch.begin(), epoch.end());
        beginnings.insert(epoch[0]);
        EXPECT_GE(epoch[0], 2);
        for (std::int32_t i = 0; i < count; ++i)
            EXPECT_EQ(epoch[static_cast<std::size_t>(i)], epoch[0] + 7 * i);
    }
    EXPECT_GE(beginnings.size(), 6u) << "of 7 places where an epoch may begin";
}

TEST(TextWindows, SeedAndStepAloneDecide) {
    const TokenStream stream = counting(5000);
    Options options = {.batch = 2, .sequence = 16, .order = BatchOrder::random, .seed = 1};
    const TextWindows a = windows(stream, stream.all(), options), b = windows(stream, stream.all(), options);
    for (std::uint64_t step = 0; step < 500; ++step) batch_of(a, options, step, 0);
    EXPECT_EQ(batch_of(a, options, 321, 0), batch_of(b, options, 321, 0));
    options.seed = 2;
    const TextWindows c = windows(stream, stream.all(), options);
    EXPECT_NE(batch_of(a, options, 321, 0), batch_of(c, options, 321, 0));
}

TEST(TextWindows, TooShortATextIsRefused) {
    const TokenStream stream = counting(24);
    const auto refusal = [&](const Options& options) {
        return testing::error_of([&] { windows(stream, stream.all(), options); });
    };
    EXPECT_EQ(
        refusal({.batch = 4, .sequence = 6}),
        "text.txt: 24 tokens, but a step of 4 x 6 (batch x sequence) needs 25; give more text, or lower "
        "`batch` or `sequence`");
    EXPECT_EQ(
        refusal({.batch = 2, .sequence = 6, .accumulate = 2}),
        "text.txt: 24 tokens, but a step of 2 micro-batches of 2 x 6 (batch x sequence) needs 25; give more "
        "text, or lower `batch` or `sequence`");
    EXPECT_EQ(refusal({.batch = 4, .sequence = 6, .order = BatchOrder::random}), "no error");
    EXPECT_EQ(
        refusal({.batch = 4, .sequence = 60, .order = BatchOrder::random}),
        "text.txt: 24 tokens, but a sequence of 60 needs 61; give more text, or a `sequence` of at most 23");
    EXPECT_THROW(windows(stream, {3, 3}, {.batch = 1, .sequence = 1}), UserError);
    // A part of a sequence is taken, too, where all that a text predicts is.
    const BatchOptions all{.batch = 4, .all = true};
    EXPECT_EQ(TextWindows(stream, {0, 2}, 6, all).steps_per_epoch(), 1u);
    try {
        const TextWindows one(stream, {0, 1}, 6, all);
        ADD_FAILURE() << "one token predicts nothing";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "text.txt: 1 token, but a loss needs 2; give more text");
    }
}

TEST(TokenSplit, ValidationIsTheLastTenth) {
    const TokenSplit split = split_for_validation({0, 338'025});
    EXPECT_EQ(split.train, (TokenRange{0, 304'223}));
    EXPECT_EQ(split.validation, (TokenRange{304'223, 338'025}));
}

TEST(Permutation, IsABijectionForEverySize) {
    for (std::uint64_t count = 1; count <= 300; ++count)
        for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
            std::vector<bool> seen(count);
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint64_t image = shuffled(i, count, {.seed = 5, .epoch = epoch});
                ASSERT_LT(image, count);
                ASSERT_FALSE(seen[image]) << image << " twice, of " << count;
                seen[image] = true;
            }
        }
    EXPECT_LT(shuffled(UINT64_MAX - 1, UINT64_MAX, {}), UINT64_MAX);
    EXPECT_THROW(shuffled(3, 3, {}), InternalError);
}

TEST(Permutation, SpreadsEvenly) {
    // Where element 0 of 10 goes, over 20,000 epochs: chi-square with 9 degrees of freedom; 33.7 is exceeded
    // by chance once in 10,000 (0.9999 quantile). The sample is fixed by the seed.
    std::map<std::uint64_t, double> count;
    for (std::uint64_t epoch = 0; epoch < 20'000; ++epoch)
        ++count[shuffled(0, 10, {.seed = 3, .epoch = epoch})];
    double chi_square = 0;
    for (std::uint64_t i = 0; i < 10; ++i) chi_square += (count[i] - 2000) * (count[i] - 2000) / 2000;
    EXPECT_LT(chi_square, 33.7);
}

}  // namespace
}  // namespace mantissa
