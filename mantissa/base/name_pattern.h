// Names chosen by a pattern, as files are in a shell: `layer1.*`, `*.bias`, `h.?.mlp.*`.
#pragma once

#include <string_view>

namespace mantissa::inline v0 {

/// Whether the whole name fits the pattern: `*` stands for any text, dots among it, and `?` for one
/// character.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace mantissa
