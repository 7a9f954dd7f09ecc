// Loss and accuracy of a network for images on images that it did not learn from.
#include "mantissa/train/image_scores.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/image_model.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

ImageScores scores_of(const std::vector<double>& scores, std::int32_t label) {
    ImageScores result;
    result.add(scores, label);
    return result;
}

TEST(ImageScores, CountTheFirstGuessAndTheFirstFive) {
    const std::vector<double> scores{6, 5, 4, 3, 2, 1, 0};
    EXPECT_EQ(scores_of(scores, 0).top1, 1);
    EXPECT_EQ(scores_of(scores, 1).top1, 0);
    EXPECT_EQ(scores_of(scores, 4).top5, 1);
    EXPECT_EQ(scores_of(scores, 5).top5, 0);
    // One of equal scores is the first guess, the same for all.
    EXPECT_EQ(scores_of({1, 1, 0}, 0).top1, 1);
    EXPECT_EQ(scores_of({1, 1, 0}, 1).top1, 0);
    EXPECT_NEAR(scores_of({0, std::log(3.0)}, 1).total_loss, std::log(4.0 / 3), 1e-12);
    EXPECT_NEAR(scores_of({1000, 1000}, 1).total_loss, std::log(2.0), 1e-12);
    ImageScores two = scores_of(scores, 0);
    two.add(scores, 6);
    EXPECT_EQ(two.top1_share(), 0.5);
    EXPECT_EQ(two.top5_share(), 0.5);
}

TEST(ImageScores, WhatIsNoNumberIsNeverRight) {
    for (const std::int32_t label : {0, 1, 2}) {
        EXPECT_EQ(scores_of({nan, nan, nan}, label).top1, 0);
        EXPECT_EQ(scores_of({nan, nan, nan}, label).top5, 0);
    }
    EXPECT_EQ(scores_of({2, nan, 1}, 0).top1, 0);
    EXPECT_EQ(scores_of({nan, 2, 1}, 0).top1, 0);
    EXPECT_TRUE(std::isnan(scores_of({2, nan, 1}, 0).total_loss));
}

TEST(ImageScores, AreThoseOfTheTrainersNetworkAsItIs) {
    const TemporaryDirectory directory;
    std::string records;
    for (int i = 0; i < 7; ++i) records += testing::cifar_record(i % 3, 11 * i);
    testing::write_file(directory / "data_batch_1.bin", records);
    const ImageSet set = open_images(directory.path(), {}).training;
    ImageBatchOptions options{.batches = {.batch = 4},
                              .cut = {.image = 32, .resize = 32, .pixels = cifar10_pixels}};
    const ImageBatches training(set, options);
    options.use = ImageBatchOptions::Use::validation;
    const ImageBatches validation(set, options);
    const nn::ImageModel network = nn::image_model("ResNet20", {.classes = 10, .image = 32, .width = 4});
    const auto device = make_cpu_device({});
    BatchBuffer buffer(network.model, 4);
    std::uint64_t batches_done = 0, batches_in_all = 0;
    const auto heard = [&](std::uint64_t done, std::uint64_t of) {
        batches_done = done, batches_in_all = of;
    };
    for (const char* policy : {"fp32", "bf16"}) {
        TrainerOptions trainer_options{.batch = 4};
        trainer_options.policy = find_policy(policy);
        Trainer trainer(*device, network.model, trainer_options);
        ImageScorer scorer(trainer);
        const auto evaluated = [&] {
            return static_cast<double>(trainer.evaluate(buffer.fill(validation, 0)).loss);
        };
        // Before the trainer has made anything of its parameters.
        const double before = scorer.score(validation, 1, 1, heard).loss();
        EXPECT_NEAR(before, evaluated(), 1e-5 * std::abs(before)) << policy;
        for (std::uint64_t step = 0; step < 3; ++step) trainer.step(buffer.fill(training, step), 1e-2);
        const ImageScores scores = scorer.score(validation, 1, 2, heard);
        EXPECT_EQ(scores.images, 4);
        EXPECT_NE(scores.loss(), before) << policy;
        EXPECT_NEAR(scores.loss(), evaluated(), 1e-5 * std::abs(scores.loss())) << policy;
        // The second batch has three images and a row of none, which no loss counts.
        const ImageScores all = scorer.score(validation, 9, 1, heard);
        EXPECT_EQ(all.images, 7);
        const auto rest = static_cast<double>(trainer.evaluate(buffer.fill(validation, 1)).loss);
        EXPECT_NEAR(3 * rest, all.total_loss - scores.total_loss, 1e-5 * all.total_loss) << policy;
        EXPECT_EQ(batches_done, 2U);
        EXPECT_EQ(batches_in_all, 2U);
    }
}

}  // namespace
}  // namespace mantissa
