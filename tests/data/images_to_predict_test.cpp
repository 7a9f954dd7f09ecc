// The images to be predicted, and how the file beside the weights says that they are cut.
#include "mantissa/data/image_folders.h"

#include <gtest/gtest.h>

#include "mantissa/data/image_cut.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::write_file;

TEST(ImagesToPredict, AreFilesAndWhatFoldersHold) {
    const TemporaryDirectory directory;
    const auto path = [&](const char* name) { return (directory / name).string(); };
    for (const char* name : {"val/cat/2.png", "val/cat/1.JPG", "val/dog/night/3.jpeg", "val/other/4.png",
                             "val/cat/notes.txt", "alone.png", "dog/cat.png"})
        write_file(path(name), "");
    const std::vector<std::string> classes{"dog", "cat"};
    write_file(path("val/cat/photo.webp"), "");
    const ImagesToPredict found =
        images_to_predict({path("alone.png"), path("val"), path("dog/cat.png")}, classes);
    const ImageSet& set = found.set;
    EXPECT_EQ(found.left_out, "2 files with another ending than .jpg, .jpeg and .png");
    const std::vector<std::string> files{path("alone.png"),       path("val/cat/1.JPG"),
                                         path("val/cat/2.png"),   path("val/dog/night/3.jpeg"),
                                         path("val/other/4.png"), path("dog/cat.png")};
    EXPECT_EQ(set.files, files);
    EXPECT_EQ(set.classes, classes);
    std::vector<std::int32_t> labels;
    for (const ImageEntry& image : set.images) labels.push_back(image.label);
    EXPECT_EQ(labels, (std::vector<std::int32_t>{unknown_class, 1, 1, 0, unknown_class, 0}));
}

TEST(ImagesToPredict, OfCifar10AreThoseOfItsTest) {
    const TemporaryDirectory directory;
    const std::string folder = directory.path().string();
    for (const char* name : {"data_batch_1.bin", "test_batch.bin"})
        write_file(directory / name, testing::cifar_record(3, 1) + testing::cifar_record(7, 2));
    const ImageSet set = images_to_predict({folder}, {"other", "classes"}).set;
    ASSERT_EQ(set.count(), 2U);
    EXPECT_EQ(set.images[1].label, unknown_class);
    EXPECT_EQ(images_to_predict({folder}, set.classes).set.images[1].label, 7);
    EXPECT_NE(testing::error_of([&] {
                  images_to_predict({folder, folder}, {});
              }).find("give it alone"),
              std::string::npos);
}

TEST(ImagesToPredict, ThatAreNotThereAreNamed) {
    const TemporaryDirectory directory;
    const std::string nothing = (directory / "nothing.png").string(), folder = directory.path().string();
    EXPECT_EQ(testing::error_of([&] { images_to_predict({nothing}, {}); }), nothing + ": does not exist");
    EXPECT_EQ(testing::error_of([&] { images_to_predict({folder}, {}); }),
              folder + ": holds no image; expected files that end in .jpg, .jpeg or .png");
    write_file(directory / "a.gif", "");
    EXPECT_EQ(testing::error_of([&] { images_to_predict({folder}, {}); }),
              folder +
                  ": holds no image; expected files that end in .jpg, .jpeg or .png, found only 1 file "
                  "with another ending than .jpg, .jpeg and .png");
}

TEST(ImageCutFile, IsReadAsItWasWritten) {
    const ImageCut cut{.image = 32, .resize = 36, .pixels = cifar10_pixels};
    const std::string text = image_cut_text(cut);
    EXPECT_NE(text.find("0.4914,"), std::string::npos) << text;
    const ImageCut read = parse_image_cut(text, "f");
    EXPECT_EQ(read.image, 32);
    EXPECT_EQ(read.resize, 36);
    EXPECT_EQ(read.pixels, cifar10_pixels);
}

TEST(ImageCutFile, SaysWhatIsWrong) {
    const std::string text = image_cut_text({});
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string wrong = text;
        wrong.replace(wrong.find(from), from.size(), to);
        return testing::error_of([&] { parse_image_cut(wrong, "f"); });
    };
    EXPECT_EQ(changed("\"width\": 224", "\"width\": 225"), "f: crop_size must be a square");
    EXPECT_EQ(changed("256", "200"), "f: size.shortest_edge, 200, must be crop_size, 224, or more");
    EXPECT_EQ(changed("256", "0"), "f: size.shortest_edge must be 1 to 134217728 pixels, got 0");
    EXPECT_EQ(changed("0.229", "-1"), "f: image_std must be above 0, got -1");
    EXPECT_EQ(changed("0.485,", ""), "f: image_mean must be three numbers, got an array");
    EXPECT_EQ(changed("\"do_center_crop\": true", "\"do_center_crop\": false"),
              "f: do_center_crop is false, only true can be done");
    EXPECT_EQ(changed("\"resample\": 2", "\"resample\": 3"), "f: resample is 3, only 2 can be done");
    EXPECT_NE(changed("image_mean", "mean").find("image_mean"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
