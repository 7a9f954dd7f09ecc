// preprocessor_config.json: how pictures are cut for a network, kept beside its weights under the names that
// the transformers library gives them.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/data/picture_cut.h"

namespace mantissa::inline v0 {

inline constexpr const char* picture_cut_file = "preprocessor_config.json";

std::string picture_cut_text(const PictureCut& cut);

/// Throws UserError that begins with `source` for what is no such file, and for a cut that is not square or
/// resized to less than it.
PictureCut parse_picture_cut(std::string_view text, const std::string& source);

}  // namespace mantissa
