// Images in folders, a folder a class, as what a network of one's own trains on and is judged by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

struct ImagesOptions {
    std::int64_t image = 224;  ///< H = W of what is cut out of each
    std::int64_t resize = 0;   ///< the shorter side before that; 0: 8/7 of `image`
    BatchOptions batches = {.order = BatchOrder::random};
    bool random_place = true;  ///< where a image of training is cut; else in the middle
    bool random_flip = true;
};

class Images {
  public:
    /// DIR/CLASS/ with JPEG and PNG files, DIR/train/CLASS/ and DIR/val/CLASS/, or CIFAR-10's binary files.
    /// Where no folder says what to hold out, about a tenth is, chosen by the images' names. Nothing is
    /// decoded before it is asked for. Throws UserError that names what is missing or damaged.
    explicit Images(const std::filesystem::path& directory, const ImagesOptions& options = {});
    ~Images();
    Images(Images&&) noexcept;

    /// Names, by their numbers.
    const std::vector<std::string>& classes() const;
    /// Batches for a model whose inputs are images f32 [image, image, 3] and classes i32 []. Red, green and
    /// blue are less ImageNet's mean, over its standard deviation.
    const BatchSource& training() const;

    /// Images that are not trained on, cut out of the middle.
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
