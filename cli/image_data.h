// --images: the images that a command trains a network on, and their preprocessing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/run_options.h"
#include "mantissa/data/image_batches.h"

namespace mantissa::cli {

struct ImageDataOptions {
    std::string directory;  ///< empty: no images
    std::optional<std::int64_t> resize, padding;
    std::vector<std::string> augment = {"crop", "flip"};
    std::vector<float> mean, standard_deviation;  ///< empty: by the images' format
    std::string bad = "stop";
    std::optional<std::int64_t> read_threads;  ///< none: by the machine's threads
};

/// Adds --images and the options for reading and cutting its images.
void add_image_data_options(Command& command, ImageDataOptions& options);

/// Throws UserError, beginning with the option, for an output folder among the folders of images: the next
/// run would take it for a class.
void require_outside_images(const ImageDataOptions& options, const std::vector<NamedFile>& folders);

/// Training images, validation images, and the network for them.
struct ImageData {
    std::string description;  ///< for people
    ImageSplit split;         // images behind the batches
    nn::ImageModel network;
    ImageCut cut;
    std::unique_ptr<ImageBatches> training;
    std::unique_ptr<const ImageBatches> validation;  ///< null: none are kept
    int read_threads = 1;
};

/// The images of --images for --model. Throws UserError, naming the option or the file, if one is missing or
/// does not fit the other.
std::unique_ptr<const ImageData> open_image_data(const ImageDataOptions& options, const RunOptions& run,
                                                 const BatchOptions& batches, HoldOut hold_out);

}  // namespace mantissa::cli
