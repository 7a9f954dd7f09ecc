// Images in folders, a folder a class, for training and judging one's own network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

struct ImagesOptions {
    std::int64_t image = 224;  ///< H = W of the cut
    std::int64_t resize = 0;   ///< shorter side before the cut; 0: 8/7 of `image`
    BatchOptions batches = {.order = BatchOrder::random};
    bool random_place = true;  ///< of the training cut; else the middle
    bool random_flip = true;
};

class Images {
  public:
    /// DIR/CLASS/ with JPEG and PNG files, DIR/train/CLASS/ and DIR/val/CLASS/, or CIFAR-10's binary files.
    /// Without a validation folder, about a tenth is held out by the images' names. Images are decoded when
    /// requested. Throws UserError that names a missing or damaged item.
    explicit Images(const std::filesystem::path& directory, const ImagesOptions& options = {});
    ~Images();
    Images(Images&&) noexcept;

    /// Names, by their numbers.
    const std::vector<std::string>& classes() const;
    /// Batches for a model with inputs images f32 [image, image, 3] and classes i32 []. Red, green and blue
    /// minus ImageNet's mean, over its standard deviation.
    const BatchSource& training() const;

    /// Validation images, cut from the middle.
    struct HeldOut {
        std::vector<float> pixels;          ///< [n, image, image, 3]
        std::vector<std::int32_t> classes;  ///< [n]
    };
    HeldOut held_out() const;

  private:
    struct Sets;
    std::unique_ptr<Sets> sets_;
};

}  // namespace mantissa
