// Options under the names that they have in other programs: PyTorch scripts, nanoGPT, Hugging Face's trainer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// Names that one thing has elsewhere, without hyphens before them.
struct NamesElsewhere {
    std::vector<std::string_view> names;
    std::vector<std::string_view> options;  ///< what it is called here: the first that a command has
    std::string_view remark = {};           ///< how it is meant here, where the option alone does not say it
};

std::span<const NamesElsewhere> names_elsewhere();

/// Suggests what to type for `word`, an option that a command with these `options` does not have, as the end
/// of a message: "; did you mean --steps?". Empty where nothing is like it.
std::string what_to_type(const std::vector<std::string>& options, std::string_view word);

}  // namespace mantissa::cli
