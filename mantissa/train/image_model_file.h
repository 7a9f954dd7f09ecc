// A network for images on disk, as a training on images saves it: which one it is, its classes, how
// images are cut for it, and its weights.
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
    /// A checkpoint, whose checksums are compared. Throws UserError that names the file if there is none, or
    /// none of a network for images.
    explicit ImageModelFile(const std::filesystem::path& directory);

    const nn::ImageModel& network() const { return network_; }
    /// Names by number. A network may have more classes than the images that it learned from: these are
    /// called by their numbers.
    const std::vector<std::string>& classes() const { return classes_; }
    const ImageCut& cut() const { return cut_; }
    /// Empty, or a warning to show: that the checkpoint was damaged and the one before it was taken.
    const std::string& warning() const { return checkpoint_.warning; }

    /// The directory that was read: `directory`, or the checkpoint before it.
    const std::filesystem::path& directory() const { return checkpoint_.directory; }

    /// Copies the weights and running statistics into those states.
    void load(StateBlock& state) const;
    /// The same but for the head (nn::head_of), into the states of the same network for other classes.
    void load_trunk(StateBlock& state) const;

  private:
    LoadedCheckpoint checkpoint_;
    nn::ImageModel network_;
    std::vector<std::string> classes_;
    ImageCut cut_;
};

/// Copies the weights of a network's trunk in a safetensors file, as load_weights does (train/weights.h); the
/// head may be there, for whatever classes, or not.
void load_trunk(const nn::ImageModel& network, const std::filesystem::path& path, StateBlock& state);

}  // namespace mantissa
