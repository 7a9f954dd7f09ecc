// Turns a image of any size into the pixels that a network reads: resized until the shorter side fits,
// cropped, flipped, normalised.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// Statistics of red, green and blue, where black is 0 and white 1.
struct PixelStatistics {
    std::array<float, 3> mean, standard_deviation;

    bool operator==(const PixelStatistics&) const = default;
};

/// Statistics of ImageNet's and of CIFAR-10's training images, as they are commonly given.
inline constexpr PixelStatistics imagenet_pixels{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
inline constexpr PixelStatistics cifar10_pixels{{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

struct ImageCut {
    std::int64_t image = 224;   ///< H = W of what is cut
    std::int64_t resize = 256;  ///< the shorter side is resized to it; at least `image`
    PixelStatistics pixels = imagenet_pixels;
};

/// Where a image is cut.
struct CutPlace {
    std::int64_t padding = 0;  ///< pixels of black around the resized image
    /// How far down and to the right of all places that there are, in units of 2^-32; the middle as it is. Of
    /// two places around the middle it is the first, as in the transformers library.
    std::uint32_t down = (std::uint32_t{1} << 31) - 1, right = (std::uint32_t{1} << 31) - 1;
    bool flipped = false;  ///< left and right change places
};

/// Writes (pixel - mean) / standard_deviation to `to`, f32 [image, image, 3]. The longer side is resized to
/// whole pixels, rounded down, as in the transformers library. Resized by a triangle as wide
/// as a pixel of the result, so that shrinking averages (PIL's bilinear, without its rounding to 8 bits).
void cut_image(const Image& image, const ImageCut& cut, const CutPlace& place, std::span<float> to);

/// How images are cut for a network, kept beside its weights under the names that the transformers library
/// gives them.
inline constexpr const char* image_cut_file = "preprocessor_config.json";

std::string image_cut_text(const ImageCut& cut);

/// Throws UserError that begins with `source` for another kind of file, and for a cut that is not square or
/// whose image is resized to less than the cut.
ImageCut parse_image_cut(std::string_view text, const std::string& source);

}  // namespace mantissa
