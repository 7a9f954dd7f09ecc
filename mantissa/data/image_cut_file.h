// preprocessor_config.json: how images are cut for a network, kept beside its weights under the names that
// the transformers library gives them.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/data/image_cut.h"

namespace mantissa::inline v0 {

inline constexpr const char* image_cut_file = "preprocessor_config.json";

std::string image_cut_text(const ImageCut& cut);

/// Throws UserError that begins with `source` for another kind of file, and for a cut that is not square or
/// whose image is resized to less than the cut.
ImageCut parse_image_cut(std::string_view text, const std::string& source);

}  // namespace mantissa
