// Images and texts that were trained on are known again wherever they lie, and others are not.
#include "mantissa/data/trained_on.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::write_file;

/// Tokens that no other seed gives.
std::vector<std::int32_t> drawn(std::size_t count, std::uint32_t seed) {
    std::vector<std::int32_t> tokens;
    for (std::uint32_t i = 0; i < count; ++i)
        tokens.push_back(static_cast<std::int32_t>(philox({i, 0, 0, 0}, {seed, 0})[0] % 1000));
    return tokens;
}

std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(TrainedOn, TokensAreKnownAgainBehindOthers) {
    const std::vector<std::int32_t> learnt = drawn(200000, 1);
    const TokenStream before(learnt), after(joined(drawn(70001, 2), learnt));
    const TrainedOn trained = TrainedOn::tokens(before, {0, 180000});
    // The same split: nothing that is held out was trained on.
    EXPECT_EQ(trained.share_of(before, {180000, 200000}, before, {0, 180000}), 0);
    // All of it, and half of it.
    EXPECT_NEAR(trained.share_of(before, {0, 100000}, before, {100000, 200000}), 1, 0.1);
    EXPECT_NEAR(trained.share_of(before, {160000, 200000}, before, {0, 160000}), 0.5, 0.2);
    // Where it lies does not matter.
    EXPECT_NEAR(trained.share_of(after, {70001, 170001}, after, {0, 70001}), 1, 0.1);
    EXPECT_EQ(trained.share_of(after, {0, 70001}, after, {70001, 270001}), 0);
    // A text that is trained on now as before tells nothing.
    EXPECT_EQ(trained.share_of(before, {0, 180000}, after, after.all()), 0);
    // Both runs of a chain, as a text keeps them.
    TrainedOn both = TrainedOn::tokens(TokenStream(drawn(180000, 3)), {0, 180000});
    both.add(trained);
    const TrainedOn kept = TrainedOn::of_text(both.text(), "state.json");
    EXPECT_EQ(kept.text(), both.text());
    EXPECT_NEAR(kept.share_of(before, {0, 100000}, before, {100000, 200000}), 1, 0.25);
    EXPECT_EQ(kept.share_of(before, {180000, 200000}, before, {0, 180000}), 0);
}

TEST(TrainedOn, ShortTextsAndRepeatedOnesTellNothingWrong) {
    const TokenStream brief(drawn(31, 1)), enough(drawn(32, 1));
    EXPECT_TRUE(TrainedOn::tokens(brief, brief.all()).empty());
    const TrainedOn trained = TrainedOn::tokens(enough, enough.all());
    EXPECT_FALSE(trained.empty());
    EXPECT_EQ(trained.share_of(brief, brief.all(), enough, {0, 0}), 0);
    EXPECT_GT(trained.share_of(enough, enough.all(), brief, brief.all()), 0);
    // Lines of a log that come again and again are on both sides of any split.
    const TokenStream log(std::vector<std::int32_t>(70000, 7));
    EXPECT_EQ(TrainedOn::tokens(log, {0, 65000}).share_of(log, {0, 7000}, log, {7000, 70000}), 0);
    // A chunk's end, where one is read after another: each run is taken once.
    for (const std::size_t size : {65535u, 65536u, 65567u, 65568u, 65569u}) {
        const TokenStream stream(drawn(size, 4));
        const TrainedOn end = TrainedOn::tokens(stream, {size - 100, size});
        EXPECT_NEAR(end.share_of(stream, stream.all(), brief, {0, 0}) * static_cast<double>(size), 100, 1);
    }
}

TEST(TrainedOn, ImagesAreKnownByWhatTheyHold) {
    const TemporaryDirectory directory;
    for (const char* name : {"cat", "dog"})
        for (int i = 0; i < 50; ++i)
            write_file(directory / name / (std::to_string(i) + ".png"), name + std::to_string(i * i));
    const ImageSplit all = open_images(directory.path(), {});
    const TrainedOn trained = TrainedOn::images(all.training);
    const auto split = [&] { return open_images(directory.path(), {.hold_out = HoldOut::by_name}); };
    const auto share = [&](const TrainedOn& before, const ImageSplit& now) {
        return before.share_of(now.validation, TrainedOn::images(now.training));
    };
    EXPECT_EQ(share(trained, split()), 1);
    const TrainedOn of_split = TrainedOn::images(split().training);
    EXPECT_EQ(share(of_split, split()), 0);
    // Renamed, some are held out that were trained on.
    for (int i = 0; i < 50; ++i)
        std::filesystem::rename(directory / "cat" / (std::to_string(i) + ".png"),
                                directory / "cat" / ("renamed" + std::to_string(i) + ".png"));
    const double renamed = share(of_split, split());
    EXPECT_GT(renamed, 0);
    EXPECT_LT(renamed, 1);
    // Others under the same names are others.
    for (const char* name : {"cat", "dog"})
        for (const auto& entry : std::filesystem::directory_iterator(directory / name))
            write_file(entry.path(), "another" + entry.path().filename().string());
    EXPECT_EQ(share(of_split, split()), 0);
}

TEST(TrainedOn, ADamagedTextIsNamed) {
    for (const char* text : {"", "7", "x 0123456789abcdef", "7 0123456789abcde", "7 0123456789abcdeg",
                             "7 00000000000000020000000000000001"})
        EXPECT_EQ(testing::error_of<UserError>([&] { TrainedOn::of_text(text, "state.json"); }),
                  "state.json: \"trained_on\" is damaged: expected a number and sixteen digits a mark")
            << text;
}

}  // namespace
}  // namespace mantissa
