// The findings in a folder of images, and what is said of folders that hold none or the wrong ones.
#include "mantissa/data/image_set.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::cifar_record;
using testing::write_file;

/// Nothing decodes them here.
void write_images(const std::filesystem::path& folder, int count) {
    for (int i = 0; i < count; ++i) write_file(folder / (std::to_string(i) + ".png"), "picture");
}

std::string refusal_of_images(const std::filesystem::path& directory, HoldOut hold_out = HoldOut::nothing) {
    return testing::error_of([&] { open_images(directory, {.hold_out = hold_out}); });
}

TEST(ImageSets, AFolderIsAClass) {
    const TemporaryDirectory directory;
    write_images(directory / "dog", 2);
    write_file(directory / "cat" / "b.JPEG", "");
    write_file(directory / "cat" / "more" / "a.jpg", "");
    write_file(directory / "cat" / "notes.txt", "");
    write_file(directory / "cat" / ".hidden.png", "");
    write_file(directory / ".cache" / "a.png", "");
    const ImageSplit split = open_images(directory.path(), {});
    EXPECT_EQ(split.training.classes, (std::vector<std::string>{"cat", "dog"}));
    ASSERT_EQ(split.training.count(), 4u);
    EXPECT_EQ(split.training.name(0), (directory / "cat" / "b.JPEG").string());
    EXPECT_EQ(split.training.name(1), (directory / "cat" / "more" / "a.jpg").string());
    EXPECT_EQ(split.training.images[1].label, 0);
    EXPECT_EQ(split.training.images[3].label, 1);
    EXPECT_EQ(
        split.account,
        "each folder taken for a class; left out: 1 file with another ending than .jpg, .jpeg and .png, 2 "
        "hidden files or folders");
    EXPECT_EQ(split.validation.count(), 0u);
}

TEST(ImageSets, TrainAndValAreTakenWhereTheyAre) {
    const TemporaryDirectory directory;
    for (const char* name : {"train/cat", "train/dog", "val/dog"}) write_images(directory / name, 3);
    const ImageSplit split = open_images(directory.path(), {.hold_out = HoldOut::by_name});
    EXPECT_EQ(split.training.count(), 6u);
    ASSERT_EQ(split.validation.count(), 3u);
    EXPECT_EQ(split.validation.images[0].label, 1);
    EXPECT_FALSE(split.held_out);
    // A class may have the name of a part.
    const TemporaryDirectory vehicles;
    for (const char* name : {"train", "car"}) write_images(vehicles / name, 1);
    EXPECT_EQ(open_images(vehicles.path(), {}).training.classes, (std::vector<std::string>{"car", "train"}));
}

TEST(ImageSets, LinkedFoldersAreEnteredOnceAndHiddenOnesNever) {
    const TemporaryDirectory directory, elsewhere;
    namespace fs = std::filesystem;
    for (const char* name : {"cat", "dog", "cat/.cache"}) write_images(directory / name, 2);
    write_images(elsewhere / "more", 3);
    fs::create_directory_symlink(elsewhere / "more", directory / "cat" / "linked");
    fs::create_directory_symlink(elsewhere / "more", directory / "cat" / "linked again");
    fs::create_directory_symlink(directory.path(), directory / "dog" / "up");
    fs::create_directory_symlink(elsewhere / "none", directory / "dog" / "gone");
    write_file(directory / "lies-here.png", "");
    const ImageSplit split = open_images(directory.path(), {});
    ASSERT_EQ(split.training.count(), 7u);
    EXPECT_EQ(split.training.name(2), (directory / "cat" / "linked" / "0.png").string());
    const std::string root = directory.path().string();
    EXPECT_EQ(split.account,
              "each folder taken for a class; left out: 1 file beside the folders of classes, 1 hidden file "
              "or folder, links to nothing or to a folder that was read already (" +
                  root + "/cat/linked again, " + root + "/dog/gone, " + root + "/dog/up)");
}

TEST(ImageSets, SplitsHaveTheirUsualNamesInAnyCase) {
    for (const auto& [training, validation] :
         {std::pair{"Train", "Val"}, {"training", "valid"}, {"TRAIN", "Validation"}, {"train", "Test"}}) {
        const TemporaryDirectory directory;
        for (const std::string& part : {std::string(training), std::string(validation)})
            for (const char* name : {"cat", "dog"}) write_images(directory / part / name, 1);
        const ImageSplit split = open_images(directory.path(), {});
        EXPECT_EQ(split.training.classes, (std::vector<std::string>{"cat", "dog"}));
        EXPECT_EQ(split.validation.count(), 2u);
        EXPECT_EQ(split.account,
                  std::string(training) + "/ taken for training, " + validation + "/ for validation");
    }
    const TemporaryDirectory directory;
    for (const char* name : {"train/cat", "train/dog", "val/cat", "test/dog", "extra/cat"})
        write_images(directory / name, 1);
    EXPECT_EQ(
        open_images(directory.path(), {}).account,
        "train/ taken for training, val/ for validation; left out: extra/, test/; not validated, for want "
        "of an image: dog");
    write_images(directory / "valid" / "cat", 1);
    EXPECT_EQ(refusal_of_images(directory.path()),
              directory.path().string() + ": val/ and valid/ both stand for the same part; keep one");
}

/// Names of what is held out, below the folder.
std::set<std::string> held_out_of(const std::filesystem::path& directory, std::uint64_t seed = 0) {
    const ImageSplit split = open_images(directory, {.hold_out = HoldOut::by_name, .seed = seed});
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < split.validation.count(); ++i)
        names.insert(split.validation.name_in_folder(i));
    for (std::uint64_t i = 0; i < split.training.count(); ++i)
        EXPECT_FALSE(names.contains(split.training.name_in_folder(i)));
    EXPECT_EQ(split.training.classes.size(), 3u);
    return names;
}

/// The names that are in both.
std::set<std::string> those_in(const std::set<std::string>& some, const std::set<std::string>& others) {
    std::set<std::string> both;
    for (const std::string& name : some)
        if (others.contains(name)) both.insert(name);
    return both;
}

TEST(ImageSets, AboutATenthIsHeldOutByNameWhateverElseIsThere) {
    const TemporaryDirectory directory;
    for (const char* name : {"cat", "dog", "emu"}) write_images(directory / name, 200);
    const std::set<std::string> before = held_out_of(directory.path());
    EXPECT_GT(before.size(), 40u);
    EXPECT_LT(before.size(), 80u);
    EXPECT_EQ(held_out_of(directory.path(), 7), before);
    EXPECT_EQ(held_out_of(directory.path().string() + "/"), before);
    // Ten more of each class, and a class in another place.
    for (const char* name : {"cat", "dog", "emu"}) write_images(directory / name, 210);
    const std::set<std::string> more = held_out_of(directory.path());
    EXPECT_EQ(those_in(before, more), before);
    for (const std::string& name : more)
        EXPECT_TRUE(before.contains(name) || std::stoi(name.substr(4)) >= 200) << name;
    // Ten are removed, ten renamed.
    std::set<std::string> removed;
    for (int i = 0; i < 20; ++i) {
        const std::filesystem::path image = directory / "dog" / (std::to_string(i) + ".png");
        removed.insert("dog/" + image.filename().string());
        if (i < 10) std::filesystem::rename(image, directory / "dog" / ("new" + image.filename().string()));
        std::filesystem::remove(image);
    }
    std::set<std::string> less = held_out_of(directory.path()), left = more;
    std::erase_if(less, [](const std::string& name) { return name.starts_with("dog/new"); });
    std::erase_if(left, [&](const std::string& name) { return removed.contains(name); });
    EXPECT_EQ(less, left);
    // The whole in train/, in another folder.
    const TemporaryDirectory elsewhere;
    std::filesystem::rename(directory.path(), elsewhere / "train");
    EXPECT_EQ(those_in(held_out_of(elsewhere.path()), less), less);
    std::filesystem::create_directory(directory.path());
}

/// Checkpoints rely on it: images that were trained on must not be held out by the next version.
TEST(ImageSets, TheChoiceByNameStaysTheSame) {
    const TemporaryDirectory directory;
    for (const char* name : {"cat", "dog", "emu"}) write_images(directory / name, 30);
    EXPECT_EQ(held_out_of(directory.path()),
              (std::set<std::string>{"cat/12.png", "cat/20.png", "cat/5.png", "dog/19.png", "dog/24.png",
                                     "dog/25.png", "dog/7.png", "emu/13.png", "emu/16.png", "emu/20.png",
                                     "emu/21.png", "emu/29.png", "emu/4.png"}));
}

TEST(ImageSets, AClassKeepsAnImageToTrainOnAndIsNamedWithoutOneToValidate) {
    const TemporaryDirectory directory;
    write_images(directory / "cat", 100);
    write_images(directory / "dog", 1);
    for (int i = 0; i < 40; ++i) {  // some of these would be held out
        std::filesystem::rename(directory / "dog", directory / ("dog" + std::to_string(i)));
        const ImageSplit split = open_images(directory.path(), {.hold_out = HoldOut::by_name});
        EXPECT_EQ(split.training.images.back().label, 1);
        EXPECT_EQ(split.account, "each folder taken for a class; not validated, for want of an image: dog" +
                                     std::to_string(i));
        std::filesystem::rename(directory / ("dog" + std::to_string(i)), directory / "dog");
    }
}

/// As runs of earlier versions go on with it.
TEST(ImageSets, ATenthOfEachClassIsHeldOutBySeed) {
    const TemporaryDirectory directory;
    write_images(directory / "cat", 57);
    write_images(directory / "dog", 20);
    write_images(directory / "rare", 9);
    const ImageSplit split = open_images(directory.path(), {.hold_out = HoldOut::by_seed, .seed = 3});
    std::multiset<std::int32_t> labels;
    for (const ImageEntry& image : split.validation.images) labels.insert(image.label);
    EXPECT_EQ(labels.count(0), 5u);
    EXPECT_EQ(labels.count(1), 2u);
    EXPECT_EQ(labels.count(2), 0u);
    EXPECT_EQ(split.training.count(), 79u);
    EXPECT_EQ(open_images(directory.path(), {.hold_out = HoldOut::by_seed, .seed = 3}).validation.images,
              split.validation.images);
    EXPECT_NE(open_images(directory.path(), {.hold_out = HoldOut::by_seed, .seed = 4}).validation.images,
              split.validation.images);
}

TEST(ImageSets, WhatIsMissingIsNamed) {
    const TemporaryDirectory directory;
    const std::string root = directory.path().string();
    EXPECT_EQ(refusal_of_images(root + "/none"),
              root + "/none: does not exist; a folder of images was expected");
    write_file(directory / "file", "");
    EXPECT_EQ(refusal_of_images(root + "/file"),
              root + "/file: is no folder; a folder of images was expected");
    const std::string expected =
        ": no image is there: expected a folder a class with .jpg, .jpeg or .png files, such folders in "
        "train/ and val/, or CIFAR-10's data_batch_1.bin";
    EXPECT_EQ(refusal_of_images(root), root + expected);
    write_images(directory / "cat", 2);
    EXPECT_EQ(refusal_of_images(root),
              root + ": only the class cat is there; two are the least to tell apart");
    std::filesystem::create_directory(directory / "dog");
    EXPECT_EQ(refusal_of_images(root),
              root +
                  "/dog: a class without an image (.jpg, .jpeg or .png); put some there, or "
                  "remove the folder");
    write_images(directory / "dog", 2);
    EXPECT_EQ(refusal_of_images(root), "no error");
    EXPECT_EQ(refusal_of_images(root, HoldOut::by_name),
              root +
                  ": validation takes about a tenth of the images, chosen by their names, and of 4 images it "
                  "takes none; give more, or a folder val/ beside train/");
}

TEST(ImageSets, AClassWhoseNameBreaksTheLineIsRefused) {
    const TemporaryDirectory directory;
    for (const char* name : {"cat", "do\ng"}) write_images(directory / name, 1);
    const std::string root = directory.path().string();
    EXPECT_EQ(refusal_of_images(root),
              root +
                  ": the name of a class, do\\ng, has a line break, which the list of classes in a "
                  "checkpoint cannot hold; rename the folder");
}

TEST(ImageSets, AClassThatOnlyValidationHasIsNamed) {
    const TemporaryDirectory directory;
    const std::string root = directory.path().string();
    write_images(directory / "val" / "bird", 1);
    EXPECT_EQ(refusal_of_images(root), root + ": val/ is there, but no train/ with a folder a class");
    for (const char* name : {"train/cat", "train/dog"}) write_images(directory / name, 1);
    EXPECT_EQ(refusal_of_images(root), root + "/val/bird: a class that is only there: " + root +
                                           "/train has no folder of that name, so nothing teaches it");
    std::filesystem::remove_all(directory / "val" / "bird");
    EXPECT_EQ(refusal_of_images(root),
              root +
                  "/val: no image is there; put a folder a class, or remove val/ to have a "
                  "tenth of train/ held out");
}

TEST(ImageSets, Cifar10sFilesAreRead) {
    const TemporaryDirectory directory;
    write_file(directory / "data_batch_1.bin", cifar_record(3, 0) + cifar_record(0, 9));
    write_file(directory / "data_batch_2.bin", cifar_record(1, 5));
    write_file(directory / "test_batch.bin", cifar_record(2, 7));
    write_file(directory / "batches.meta.txt", "a\r\nb\nc\nd\n\n");
    const ImageSplit split = open_images(directory.path(), {.hold_out = HoldOut::by_name});
    EXPECT_EQ(split.training.classes, (std::vector<std::string>{"a", "b", "c", "d"}));
    ASSERT_EQ(split.training.count(), 3u);
    EXPECT_EQ(split.validation.count(), 1u);
    EXPECT_EQ(split.training.name(1), (directory / "data_batch_1.bin").string() + ", record 1");
    EXPECT_EQ(split.training.images[1].label, 0);
    const Image image = read_image(split.training, 1);
    EXPECT_EQ(image.height, 32);
    // Row 2, column 3 of the record whose tone is 9.
    const std::size_t at = (2 * 32 + 3) * 3;
    EXPECT_EQ(image.pixels[at], 22);
    EXPECT_EQ(image.pixels[at + 1], 72);
    EXPECT_EQ(image.pixels[at + 2], 122);
    std::filesystem::remove(directory / "batches.meta.txt");
    EXPECT_EQ(open_images(directory.path(), {}).training.classes.size(), 10u);
    // The same names and other pixels are other images.
    const std::string before = open_images(directory.path(), {}).training.description();
    write_file(directory / "data_batch_2.bin", cifar_record(1, 6));
    EXPECT_NE(open_images(directory.path(), {}).training.description(), before);
}

TEST(ImageSets, FaultsInCifar10sFilesAreNamed) {
    const TemporaryDirectory directory;
    const std::string root = directory.path().string(), file = root + "/data_batch_1.bin";
    write_file(root + "/test_batch.bin", cifar_record(0, 0));
    EXPECT_EQ(refusal_of_images(root),
              root + ": there is test_batch.bin but no data_batch_1.bin to train on");
    for (const std::string& cut : {cifar_record(0, 0).substr(1), cifar_record(0, 0) + "x"}) {
        write_file(file, cut);
        EXPECT_EQ(refusal_of_images(root),
                  file + ": " + std::to_string(cut.size()) +
                      " bytes are no whole number of CIFAR-10's records of 3073 bytes; the file is cut short "
                      "or of another kind");
    }
    write_file(root + "/data_batch_4.bin", cifar_record(0, 0));
    EXPECT_EQ(refusal_of_images(root),
              root +
                  "/data_batch_2.bin: is missing, though 2 others are there, to number 4; copy "
                  "it, too");
    std::filesystem::remove(root + "/data_batch_4.bin");
    write_file(file, cifar_record(0, 0) + cifar_record(10, 0));
    EXPECT_EQ(refusal_of_images(root), file + ", record 1: class 10, but there are 10, from 0 on");
    write_file(root + "/batches.meta.txt", "\n");
    EXPECT_EQ(refusal_of_images(root),
              root + "/batches.meta.txt: expected the name of a class a line, 1 to 256, got 0");
}

}  // namespace
}  // namespace mantissa
