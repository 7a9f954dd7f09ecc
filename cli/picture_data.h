// --images: the pictures that a command trains a network on, and how they are cut.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/run_options.h"
#include "mantissa/data/picture_batches.h"

namespace CLI {
class App;
}

namespace mantissa::cli {

struct PictureDataOptions {
    std::string directory;  ///< empty: no pictures
    std::optional<std::int64_t> resize, padding;
    std::vector<std::string> augment = {"crop", "flip"};
    std::vector<float> mean, standard_deviation;  ///< empty: as the format of the pictures has them
    std::string bad = "stop";
    std::optional<std::int64_t> read_threads;  ///< none: as many as the machine's threads suggest
};

/// Adds --images and those that say how its pictures are read and cut.
void add_picture_data_options(CLI::App& command, PictureDataOptions& options);

/// Throws UserError, naming the option, where one of these was given to the command and no pictures were.
void require_images(const CLI::App& command, const PictureDataOptions& options);

/// Throws UserError, beginning with the option, for a folder that is to be written and lies among the folders
/// of pictures: the next start would take it for a class.
void require_outside_pictures(const PictureDataOptions& options, const std::vector<NamedFile>& folders);

/// The pictures that are trained on, and those that are not; the network for them.
struct PictureData {
    std::string description;  ///< for people
    PictureSplit split;       // what the batches are read from
    nn::ImageModel network;
    PictureCut cut;
    std::unique_ptr<PictureBatches> training;
    std::unique_ptr<const PictureBatches> validation;  ///< validation null: nothing is kept for it
    int read_threads = 1;
};

/// The pictures of --images for --model. Throws UserError, naming the option or the file, where one is
/// missing or does not fit the other.
std::unique_ptr<const PictureData> open_picture_data(const PictureDataOptions& options, const RunOptions& run,
                                                     const BatchOptions& batches, bool hold_out);

}  // namespace mantissa::cli
