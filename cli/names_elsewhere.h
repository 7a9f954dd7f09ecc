// Options under other names: those of earlier versions, which are still taken, and those that they have in
// other programs: PyTorch scripts, nanoGPT, Hugging Face's trainer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// The option's name today, without hyphens before it; any other name as it is. Names of earlier versions are
/// taken on the command line, in option files and from checkpoints, and stand in no help.
std::string option_today(std::string_view name);

/// A value of the option, or several with commas between, in the words of today.
std::string value_today(std::string_view option, std::string_view value);

/// A command line in the words of today.
std::vector<std::string> words_today(const std::vector<std::string>& words);

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
