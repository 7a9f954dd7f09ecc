// An image network saved by training: its kind, classes, image preprocessing and weights.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/data/image_cut.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/checkpoint.h"

namespace mantissa::inline v0 {

class ImageModelFile {
  public:
    /// Reads a checkpoint and compares its checksums. Throws UserError that names the file if there is none,
    /// or it is not of an image network.
    explicit ImageModelFile(const std::filesystem::path& directory);

    const nn::ImageModel& network() const { return network_; }
    /// Names by number. Classes beyond the training images' classes are named by their numbers.
    const std::vector<std::string>& classes() const { return classes_; }
    const ImageCut& cut() const { return cut_; }
    /// Empty, or a warning to show: the checkpoint was damaged, and the one before it was read.
    const std::string& warning() const { return checkpoint_.warning; }

    /// The directory that was read: `directory`, or the checkpoint before it.
    const std::filesystem::path& directory() const { return checkpoint_.directory; }

    /// Copies the weights and running statistics into the states.
    void load(StateBlock& state) const;
    /// Copies all but the head (nn::head_of), into states of the same network for other classes.
    void load_trunk(StateBlock& state) const;

  private:
    LoadedCheckpoint checkpoint_;
    nn::ImageModel network_;
    std::vector<std::string> classes_;
    ImageCut cut_;
};

/// Copies the trunk's weights from a safetensors file, as load_weights does (train/weights.h). The file may
/// have a head for any classes, or none.
void load_trunk(const nn::ImageModel& network, const std::filesystem::path& path, StateBlock& state);

}  // namespace mantissa
