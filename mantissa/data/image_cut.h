// Turns an image of any size into a network's input pixels: resized until the shorter side fits, cropped,
// flipped, normalised.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// Statistics of red, green and blue; black is 0 and white 1.
struct PixelStatistics {
    std::array<float, 3> mean, standard_deviation;

    bool operator==(const PixelStatistics&) const = default;
};

/// The common statistics of ImageNet's and CIFAR-10's training images.
inline constexpr PixelStatistics imagenet_pixels{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
inline constexpr PixelStatistics cifar10_pixels{{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

struct ImageCut {
    std::int64_t image = 224;   ///< H = W of the cut
    std::int64_t resize = 256;  ///< size of the shorter side before the cut; at least `image`
    PixelStatistics pixels = imagenet_pixels;
};

/// The place of a cut.
struct CutPlace {
    std::int64_t padding = 0;  ///< black pixels around the resized image
    /// Offsets down and to the right, in units of 2^-32 of the possible range; by default the middle. Of two
    /// middle places the first is taken, as in the transformers library.
    std::uint32_t down = (std::uint32_t{1} << 31) - 1, right = (std::uint32_t{1} << 31) - 1;
    bool flipped = false;  ///< mirrored left to right
};

/// Writes (pixel - mean) / standard_deviation to `to`, f32 [image, image, 3]. The longer side is resized to
/// whole pixels, rounded down, as in the transformers library. The filter is a triangle as wide as a result
/// pixel, so that shrinking averages (PIL's bilinear, without its rounding to 8 bits).
void cut_image(const Image& image, const ImageCut& cut, const CutPlace& place, std::span<float> to);

/// File of a network's image cut, beside its weights, with the names of the transformers library.
inline constexpr const char* image_cut_file = "preprocessor_config.json";

std::string image_cut_text(const ImageCut& cut);

/// Throws UserError that begins with `source` for another kind of file, for a cut that is not square, and for
/// an image resized to less than the cut.
ImageCut parse_image_cut(std::string_view text, const std::string& source);

}  // namespace mantissa
