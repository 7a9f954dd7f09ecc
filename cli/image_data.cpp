#include "cli/image_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/data/image_folders.h"

namespace mantissa::cli {

namespace {

/// Computing threads per reading thread.
constexpr int threads_per_reader = 4;
constexpr std::int64_t max_read_threads = 1024;

bool is_cifar10(const ImageSplit& split) { return split.format == ImageSplit::Format::cifar10; }

bool augments(const ImageDataOptions& options, const char* how) {
    return std::ranges::find(options.augment, how) != options.augment.end();
}

void require_augment(const ImageDataOptions& options) {
    for (const std::string& how : options.augment)
        if (how != "crop" && how != "flip" && !(how == "none" && options.augment.size() == 1))
            throw UserError(
                fmt::format("--augment is crop, flip, both with a comma between, or none, got '{}'",
                            fmt::join(options.augment, ",")));
}

PixelStatistics pixels_of(const ImageDataOptions& options, const ImageSplit& split) {
    PixelStatistics pixels = is_cifar10(split) ? cifar10_pixels : imagenet_pixels;
    std::copy(options.mean.begin(), options.mean.end(), pixels.mean.begin());
    std::copy(options.standard_deviation.begin(), options.standard_deviation.end(),
              pixels.standard_deviation.begin());
    for (std::size_t i = 0; i < 3; ++i) {
        if (!(pixels.mean[i] >= 0 && pixels.mean[i] <= 1))
            throw UserError(
                fmt::format("--mean must be three numbers from 0 to 1, as a byte divided by 255, got {}",
                            pixels.mean[i]));
        if (!(std::isfinite(pixels.standard_deviation[i]) && pixels.standard_deviation[i] > 0))
            throw UserError(
                fmt::format("--std must be three numbers above 0, got {}", pixels.standard_deviation[i]));
    }
    return pixels;
}

/// The common preprocessing: CIFAR-10's images at full size, padded with black in training; images of folders
/// a little larger than their cut.
ImageBatchOptions batch_options(const ImageDataOptions& options, const ImageSplit& split, std::int64_t image,
                                const BatchOptions& batches) {
    const std::int64_t larger = is_cifar10(split) ? image : image + image / 7;
    ImageBatchOptions chosen{.batches = batches,
                             .cut = {.image = image,
                                     .resize = options.resize.value_or(larger),
                                     .pixels = pixels_of(options, split)},
                             .random_place = augments(options, "crop"),
                             .random_flip = augments(options, "flip"),
                             .padding = options.padding.value_or(is_cifar10(split) ? image / 8 : 0),
                             .bad = options.bad == "skip" ? BadImage::skip : BadImage::stop};
    if (chosen.cut.resize < image || chosen.cut.resize > max_pixels)
        throw UserError(fmt::format("--resize must be --image-size, {}, or more, and at most {}, got {}",
                                    image, max_pixels, chosen.cut.resize));
    if (chosen.padding < 0 || chosen.padding > image)
        throw UserError(
            fmt::format("--crop-padding must be 0 to --image-size, {}, got {}", image, chosen.padding));
    return chosen;
}

/// A network with as many classes as the images have, unless more were requested.
nn::ImageModel network_for(const ImageSplit& split, const RunOptions& run, const std::string& directory) {
    if (!nn::is_image_model(run.model))
        throw UserError(fmt::format("--images needs a network for images as --model: {}; the model is {}",
                                    fmt::join(nn::image_model_names(), ", "), run.model));
    const auto classes = static_cast<std::int64_t>(split.training.classes.size());
    RunOptions sized = run;
    if (!sized.images.classes) sized.images.classes = classes;
    if (*sized.images.classes < classes)
        throw UserError(fmt::format("--classes {}: {} has {}; leave it out, or give as many",
                                    *sized.images.classes, directory,
                                    count_text(classes, "class", "classes")));
    return *image_network(sized);
}

std::string description_of(const ImageData& data, const ImageBatchOptions& options,
                           const std::string& directory) {
    const ImageSplit& split = data.split;
    const ImageCut& cut = options.cut;
    std::string text =
        fmt::format("{}: {} of {}, {} an epoch", directory, count_text(split.training.count(), "image"),
                    count_text(split.training.classes.size(), "class", "classes"),
                    count_text(data.training->steps_per_epoch(), "step"));
    if (const std::uint64_t kept = split.validation.count())
        text += fmt::format(", {} {} for validation", kept, split.held_out ? "held out" : "more");
    text += fmt::format(
        "\n{}\nresized to {}, {} x {} cropped {}{}{}, means {} standard deviations {}", split.account,
        cut.resize, cut.image, cut.image, options.random_place ? "at random places" : "from the middle",
        options.random_place && options.padding > 0 ? fmt::format(" with {} of black around", options.padding)
                                                    : "",
        options.random_flip ? ", flipped at random" : "", fmt::join(cut.pixels.mean, " "),
        fmt::join(cut.pixels.standard_deviation, " "));
    return text;
}

int read_threads_of(const ImageDataOptions& options, const RunOptions& run) {
    const int threads = run.threads > 0 ? run.threads : default_thread_count();
    const std::int64_t chosen = options.read_threads.value_or(ceil_div(threads, threads_per_reader));
    if (chosen < 1 || chosen > max_read_threads)
        throw UserError(fmt::format("--read-threads must be 1 or more, and at most {}, got {}",
                                    max_read_threads, chosen));
    return static_cast<int>(chosen);
}

}  // namespace

void add_image_data_options(Command& command, ImageDataOptions& options) {
    const Company images{{"--images"}, "says how images are read: give them as --images DIR"};
    command.add(
        "Images",
        {Row("--images", &options.directory,
             "Images to train on: a folder for each class with JPEG and PNG files, such folders in train/ "
             "and val/, or CIFAR-10's binary files",
             {.type = "DIR", .is_path = true}),
         Row("--resize", &options.resize,
             "Pixels of an image's shorter side before --image-size is cropped from it (default: 8/7 of "
             "that; CIFAR-10: as many)",
             {.beside = images}),
         Row("--crop-padding", &options.padding,
             "Black pixels around an image before a random crop (default: 0; CIFAR-10: 1/8 of --image-size)",
             {.beside = images}),
         Row("--augment", &options.augment,
             "Random changes in training: crop (at a random place), flip (left and right), both with a comma "
             "between, or none",
             {.commas = true, .words = {"crop", "flip", "none"}, .beside = images}),
         Row("--mean", &options.mean,
             "Mean of red, green and blue, from 0 to 1 (default: ImageNet's or CIFAR-10's)",
             {.values = 3, .beside = images}),
         Row("--std", &options.standard_deviation,
             "Standard deviation of red, green and blue (default: ImageNet's or CIFAR-10's)",
             {.values = 3, .beside = images}),
         Row("--bad-images", &options.bad,
             "If an image cannot be decoded: stop, once all is saved, or skip and count it",
             {.words = {"stop", "skip"}, .words_are = WordUse::all_in_sentence, .beside = images}),
         Row("--read-threads", &options.read_threads,
             "Threads that read images ahead (default: a fourth of --threads)",
             {.beside = images, .kept = Kept::nothing})});
}

void require_outside_images(const ImageDataOptions& options, const std::vector<NamedFile>& folders) {
    std::error_code none;
    if (!std::filesystem::is_directory(options.directory, none) || holds_cifar10(options.directory)) return;
    require_outside({"--images", options.directory}, "where each folder is a class", folders);
}

std::unique_ptr<const ImageData> open_image_data(const ImageDataOptions& options, const RunOptions& run,
                                                 const BatchOptions& batches, HoldOut hold_out) {
    require_augment(options);
    auto data = std::make_unique<ImageData>();
    data->read_threads = read_threads_of(options, run);
    ImageSplit& split = data->split;
    split = open_images(options.directory, {.hold_out = hold_out, .seed = run.seed});
    data->network = network_for(split, run, options.directory);
    ImageBatchOptions chosen = batch_options(options, split, data->network.sizes.image, batches);
    data->cut = chosen.cut;
    in_option("--batch", [&] { data->training = std::make_unique<ImageBatches>(split.training, chosen); });
    data->description = description_of(*data, chosen, options.directory);
    if (split.validation.count() == 0) return data;
    chosen.use = ImageBatchOptions::Use::validation;
    chosen.batches.accumulate = 1;
    data->validation = std::make_unique<ImageBatches>(split.validation, chosen);
    return data;
}

}  // namespace mantissa::cli
