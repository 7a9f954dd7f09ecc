// Batches of images: the same whoever reads them and whenever, each image once an epoch, and what becomes
// of images that cannot be decoded.
#include "mantissa/data/image_batches.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "mantissa/base/error.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr int images = 23;

/// Files of CIFAR-10's format; the label is the index modulo 10, and so is the tone.
class ImageBatchesTest : public ::testing::Test {
  protected:
    ImageBatchesTest() {
        std::string records;
        for (int i = 0; i < images; ++i) records += testing::cifar_record(i % 10, i);
        testing::write_file(directory_ / "cifar" / "data_batch_1.bin", records);
        set_ = open_images(directory_ / "cifar", {}).training;
    }

    static ImageBatchOptions options(BatchOrder order = BatchOrder::random) {
        return {.batches = {.batch = 3, .accumulate = 2, .order = order, .seed = 5},
                .cut = {.image = 32, .resize = 32, .pixels = cifar10_pixels},
                .padding = 4};
    }

    TemporaryDirectory directory_;
    ImageSet set_;
};

struct Row {
    std::int32_t label = 0;
    std::vector<float> pixels;
    bool operator==(const Row&) const = default;
};

Row row_of(const ImageBatches& batches, std::uint64_t step, std::uint64_t row) {
    Row made{0, std::vector<float>(static_cast<std::size_t>(batches.values_per_row()))};
    made.label = batches.fill_row(step, row, made.pixels);
    return made;
}

std::vector<Row> rows_of(const ImageBatches& batches, const Batch& batch) {
    std::vector<Row> rows;
    const auto size = static_cast<std::size_t>(batches.values_per_row());
    const auto* pixels = reinterpret_cast<const float*>(batch.values()[0].bytes.data());
    const auto* labels = reinterpret_cast<const std::int32_t*>(batch.values()[1].bytes.data());
    for (std::size_t i = 0; i < batches.rows_per_step(); ++i)
        rows.push_back({labels[i], {pixels + i * size, pixels + (i + 1) * size}});
    return rows;
}

TEST_F(ImageBatchesTest, EachImageComesOnceAnEpoch) {
    for (const BatchOrder order : {BatchOrder::random, BatchOrder::sequential}) {
        ImageBatchOptions as_they_are = options(order);
        as_they_are.random_place = as_they_are.random_flip = false;
        const ImageBatches batches(set_, as_they_are);
        std::map<std::vector<float>, int> seen;
        for (std::uint64_t number = 0; number < 2 * images; ++number)
            ++seen[row_of(batches, number / 6, number % 6).pixels];
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(images));
        for (const auto& [pixels, times] : seen) EXPECT_EQ(times, 2);
        EXPECT_EQ(batches.steps_per_epoch(), 3u);
    }
}

TEST_F(ImageBatchesTest, EveryRowFollowsFromSeedStepAndRow) {
    const ImageBatches batches(set_, options());
    const Row once = row_of(batches, 7, 4);
    EXPECT_EQ(row_of(batches, 7, 4), once);
    EXPECT_EQ(row_of(ImageBatches(set_, options()), 7, 4), once);
    ImageBatchOptions other = options();
    other.batches.seed = 6;
    EXPECT_NE(row_of(ImageBatches(set_, other), 7, 4), once);
}

TEST_F(ImageBatchesTest, AImageIsCutElsewhereInEachRowStepAndRun) {
    std::string records;
    for (int i = 0; i < images; ++i) records += testing::cifar_record(0, 0);
    testing::write_file(directory_ / "same" / "data_batch_1.bin", records);
    const ImageSet same = open_images(directory_ / "same", {}).training;
    ImageBatchOptions large = options();
    large.batches.batch = 11;
    const ImageBatches batches(same, large);
    std::set<std::vector<float>> of_rows, of_steps, of_seeds;
    for (std::uint64_t i = 0; i < 22; ++i) {
        ImageBatchOptions seeded = large;
        seeded.batches.seed = i;
        of_rows.insert(row_of(batches, 0, i).pixels);
        of_steps.insert(row_of(batches, i, 0).pixels);
        of_seeds.insert(row_of(ImageBatches(same, seeded), 0, 0).pixels);
    }
    // A few of 9 x 9 places, flipped or not, are drawn twice.
    for (const auto* drawn : {&of_rows, &of_steps, &of_seeds}) EXPECT_GT(drawn->size(), 16u);
}

TEST_F(ImageBatchesTest, AMicroBatchIsAPartOfItsStep) {
    const ImageBatches batches(set_, options());
    std::vector<float> pixels(static_cast<std::size_t>(3 * batches.values_per_row()));
    std::vector<std::int32_t> labels(3);
    const std::array inputs = {std::as_writable_bytes(std::span(pixels)),
                               std::as_writable_bytes(std::span(labels))};
    batches.fill(2, 1, inputs);
    EXPECT_EQ(labels[1], row_of(batches, 2, 4).label);
    EXPECT_EQ(std::vector<float>(pixels.begin() + batches.values_per_row(),
                                 pixels.begin() + 2 * batches.values_per_row()),
              row_of(batches, 2, 4).pixels);
}

TEST_F(ImageBatchesTest, ValidationTakesEachOnceAndThenNone) {
    ImageBatchOptions validation = options();
    validation.use = ImageBatchOptions::Use::validation;
    const ImageBatches batches(set_, validation);
    ASSERT_EQ(batches.steps_per_epoch(), 4u);
    for (std::uint64_t number = 0; number < 24; ++number) {
        const std::int32_t label = row_of(batches, number / 6, number % 6).label;
        EXPECT_EQ(label, number < images ? static_cast<std::int32_t>(number % 10) : ImageBatches::no_class);
    }
}

TEST_F(ImageBatchesTest, AStepOfMoreImagesThanThereAreIsRefused) {
    ImageBatchOptions large = options();
    large.batches.batch = 12;
    try {
        const ImageBatches batches(set_, large);
        FAIL() << "24 of 23";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "a step takes 24 images, but there are 23 to train on; lower the batch");
    }
}

TEST_F(ImageBatchesTest, AReaderGivesTheSameOnAnyNumberOfThreadsAndFromAnyStep) {
    const ImageBatches batches(set_, options());
    std::vector<std::vector<Row>> expected;
    for (std::uint64_t step = 0; step < 9; ++step) {
        expected.emplace_back();
        for (std::uint64_t row = 0; row < 6; ++row) expected.back().push_back(row_of(batches, step, row));
    }
    for (const int threads : {1, 2, 5})
        for (const int ahead : {1, 3})
            for (const std::uint64_t first : {0, 4}) {
                ImageReader reader(batches, {.threads = threads, .ahead = ahead, .first = first, .end = 9});
                for (std::uint64_t step = first; step < 9; ++step)
                    ASSERT_EQ(rows_of(batches, reader.next()), expected[step])
                        << threads << " threads, step " << step;
            }
}

TEST_F(ImageBatchesTest, WhatIsKeptStaysAsItIsWhileMoreIsTaken) {
    const ImageBatches batches(set_, options());
    for (const int kept : {1, 2, 3}) {
        ImageReader reader(batches, {.threads = 3, .ahead = 1, .kept = kept, .end = 9});
        std::vector<Batch> taken;
        for (std::uint64_t step = 0; step < 9; ++step) {
            taken.push_back(reader.next());
            const std::uint64_t first =
                step + 1 - std::min<std::uint64_t>(step + 1, static_cast<std::uint64_t>(kept));
            for (std::uint64_t old = first; old <= step; ++old) {
                const std::vector<Row> rows = rows_of(batches, taken[old]);
                for (std::uint64_t row = 0; row < 6; ++row)
                    ASSERT_EQ(rows[row], row_of(batches, old, row)) << kept << " kept, step " << step;
            }
        }
    }
    EXPECT_EQ(ImageReader::bytes(batches, {.ahead = 1, .kept = 3}),
              ImageReader::bytes(batches, {.ahead = 3, .kept = 1}));
}

TEST_F(ImageBatchesTest, AReaderStopsWhereItIsLeft) {
    const ImageBatches batches(set_, options());
    const auto threads = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    const auto before = threads();
    for (int i = 0; i < 20; ++i) {
        ImageReader reader(batches, {.threads = 3});
        EXPECT_GE(threads(), before + 3);
        if (i % 2 == 0) reader.next();
    }
    // The system lists a thread for a moment after it has ended.
    for (int i = 0; i < 1000 && threads() > before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(threads(), before);
}

/// 11 images in two classes, of which b/3.png and b/4.png are damaged.
class BadImagesTest : public ::testing::Test {
  protected:
    BadImagesTest() {
        for (int i = 0; i < 11; ++i) {
            std::string bytes = testing::png_of(5, 6, testing::smooth_image(5, 6, i));
            if (i == 8 || i == 9) bytes.resize(40);
            const std::string name =
                (i < 5 ? "a/" + std::to_string(i) : "b/" + std::to_string(i - 5)) + ".png";
            testing::write_file(directory_ / name, bytes);
        }
        set_ = open_images(directory_.path(), {}).training;
    }

    void SetUp() override {
#ifndef MANTISSA_TEST_PNG
        GTEST_SKIP() << "no libpng";
#endif
    }

    static ImageBatchOptions options(BadImage bad) {
        return {.batches = {.batch = 2, .order = BatchOrder::sequential},
                .cut = {.image = 4, .resize = 4, .pixels = cifar10_pixels},
                .random_place = false,
                .random_flip = false,
                .bad = bad};
    }

    TemporaryDirectory directory_;
    ImageSet set_;
};

TEST_F(BadImagesTest, StopTheStepThatTakesThemAndNoneBefore) {
    const ImageBatches batches(set_, options(BadImage::stop));
    for (const int threads : {1, 4}) {
        ImageReader reader(batches, {.threads = threads, .ahead = 5});
        for (int step = 0; step < 4; ++step) reader.next();
        for (int again = 0; again < 2; ++again) try {
                reader.next();
                FAIL() << "b/3.png was read";
            } catch (const UserError& error) {
                EXPECT_EQ(
                    std::string(error.what()).rfind((directory_ / "b/3.png").string() + ": damaged PNG: ", 0),
                    0u)
                    << error.what();
            }
    }
}

TEST_F(BadImagesTest, AreSkippedAndCountedWhereThatIsAsked) {
    const ImageBatches batches(set_, options(BadImage::skip));
    for (const int threads : {1, 4}) {
        ImageReader reader(batches, {.threads = threads, .end = 6});
        std::vector<Row> rows;
        for (int step = 0; step < 6; ++step)
            for (Row& row : rows_of(batches, reader.next())) rows.push_back(std::move(row));
        // Rows 8 and 9 are both what comes next, row 10.
        EXPECT_EQ(rows[8], rows[10]);
        EXPECT_EQ(rows[9], rows[10]);
        EXPECT_NE(rows[7], rows[10]);
    }
    EXPECT_TRUE(batches.take_skipped(4).empty());
    const std::vector<std::string> skipped = batches.take_skipped(5);
    ASSERT_EQ(skipped.size(), 2u);
    EXPECT_NE(skipped[0].find("b/3.png"), std::string::npos) << skipped[0];
    EXPECT_NE(skipped[1].find("b/4.png"), std::string::npos) << skipped[1];
    EXPECT_TRUE(batches.take_skipped(9).empty());
}

TEST_F(BadImagesTest, AreLeftOutOfValidation) {
    ImageBatchOptions validation = options(BadImage::skip);
    validation.use = ImageBatchOptions::Use::validation;
    const ImageBatches batches(set_, validation);
    std::vector<std::int32_t> labels;
    for (std::uint64_t row = 0; row < 12; ++row) labels.push_back(row_of(batches, row / 2, row % 2).label);
    EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 1, -1, -1, 1, -1}));
}

TEST_F(BadImagesTest, AllOfThemAreAnError) {
    for (const std::string& file : set_.files) testing::write_file(file, "no image");
    const ImageBatches batches(set_, options(BadImage::skip));
    try {
        row_of(batches, 0, 0);
        FAIL();
    } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()),
                  "none of the 11 images can be decoded; the first: " + (directory_ / "a/0.png").string() +
                      ": neither JPEG nor PNG: it begins with the bytes 6e 6f 20 69");
    }
}

}  // namespace
}  // namespace mantissa
