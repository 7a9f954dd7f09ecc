// A run that goes on with steps of another size reads on where it stopped: every example of an epoch once, in
// the order of one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "mantissa/base/whole_units.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr std::int64_t window = 4;

std::vector<std::int32_t> numbered_tokens() {
    std::vector<std::int32_t> tokens(50 * window + 1);  // 50 windows; 49 in random order
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
}

/// First tokens of the windows that steps first ... first + count - 1 read.
void read_on(const TextWindows& source, const BatchOptions& options, std::uint64_t first, std::uint64_t count,
             std::vector<std::uint64_t>& read) {
    for (std::uint64_t step = first; step < first + count; ++step)
        for (std::int64_t within = 0; within < options.batch * options.accumulate; ++within)
            read.push_back(source.start_of(step, static_cast<std::uint64_t>(within)));
}

/// The data of a run that is resumed three times, each time with another size of its steps.
std::vector<std::uint64_t> read_with_resumes(const TokenStream& stream, BatchOrder order) {
    struct Part {
        std::int64_t batch, accumulate;
        std::uint64_t steps;
    };
    std::vector<std::uint64_t> read;
    DataPlace place{.step = 0, .examples = 0};
    for (const Part& part : {Part{4, 1, 3}, Part{3, 2, 2}, Part{1, 1, 5}, Part{8, 1, 12}}) {
        const BatchOptions options{
            .batch = part.batch, .accumulate = part.accumulate, .order = order, .seed = 9};
        TextWindows source(stream, stream.all(), window, options);
        EXPECT_EQ(source.go_on_from(place), "");
        read_on(source, options, place.step, part.steps, read);
        place = source.place_at(place.step + part.steps);
    }
    EXPECT_EQ(place.examples, read.size());
    return read;
}

TEST(DataPlace, StepsOfOtherSizesReadEveryWindowOnceInTheOrderOfOneRun) {
    const TokenStream stream(numbered_tokens());
    for (const BatchOrder order : {BatchOrder::random, BatchOrder::sequential}) {
        const std::vector<std::uint64_t> read = read_with_resumes(stream, order);
        const BatchOptions options{.batch = 4, .order = order, .seed = 9};
        const TextWindows one(stream, stream.all(), window, options);
        std::vector<std::uint64_t> expected;
        read_on(one, options, 0, ceil_div(read.size(), 4), expected);
        expected.resize(read.size());
        EXPECT_EQ(read, expected);
        const std::size_t of_epoch = order == BatchOrder::random ? 49 : 48;
        ASSERT_GT(read.size(), 2 * of_epoch);
        for (std::size_t begin = 0; begin + of_epoch <= read.size(); begin += of_epoch) {
            const auto first = read.begin() + static_cast<std::ptrdiff_t>(begin);
            std::vector<std::uint64_t> epoch(first, first + static_cast<std::ptrdiff_t>(of_epoch));
            std::ranges::sort(epoch);
            EXPECT_EQ(std::ranges::adjacent_find(epoch), epoch.end()) << "a window was read twice";
        }
    }
}

TEST(DataPlace, OtherWindowsBeginANewEpoch) {
    const TokenStream stream(numbered_tokens());
    const BatchOptions options{.batch = 3, .order = BatchOrder::random, .seed = 9};
    const TextWindows before(stream, stream.all(), window, options);
    TextWindows after(stream, stream.all(), 2 * window, options);
    EXPECT_EQ(after.go_on_from(before.place_at(20)),
              "an epoch was 49 windows of 4 tokens in the random order of seed 9 and is 24 windows of 8 "
              "tokens in the random order of seed 9 now, so a new one begins");
    // 60 windows: in the second epoch, so the third begins.
    EXPECT_EQ(after.place_at(20).examples, 2 * 24U);
    const TextWindows whole(stream, stream.all(), 2 * window, options);
    for (std::uint64_t step = 0; step < 8; ++step)
        EXPECT_EQ(after.start_of(20 + step, 1), whole.start_of(16 + step, 1));
}

TEST(DataPlace, IsKeptByCheckpointsAndFollowsFromTheStepsOfEarlierOnes) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device();
    const nn::Gpt2Config model{
        .name = "small", .layers = 1, .heads = 1, .channels = 4, .vocabulary = 8, .context = 8};
    Trainer trainer = gpt2_trainer(*device, {.model = model, .batch = 3, .sequence = 4});
    trainer.continue_after(7);
    const DataPlace place{.step = 7, .examples = 40, .per_step = 5, .per_epoch = 30, .epoch = "an epoch"};
    save_training(directory / "with", trainer, {.place = place});
    save_training(directory / "without", trainer);
    Trainer other = gpt2_trainer(*device, {.model = model, .batch = 2, .sequence = 4});
    EXPECT_EQ(resume_training(directory / "with", other, {}, Resume::with_changes).place, place);
    EXPECT_EQ(resume_training(directory / "without", other, {}, Resume::with_changes).place,
              (DataPlace{.step = 7, .examples = 21, .per_step = 3}));
    Trainer longer = gpt2_trainer(*device, {.model = model, .batch = 3, .sequence = 8});
    EXPECT_EQ(resume_training(directory / "without", longer, {}, Resume::with_changes).place.epoch,
              "of windows of 4 tokens");
}

}  // namespace
}  // namespace mantissa
