// Options under other names: those of earlier versions, which are still accepted, and those of other
// programs: PyTorch scripts, nanoGPT, Hugging Face's trainer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// The option's present name, without hyphens; other names unchanged. Earlier names are accepted on the
/// command line, in option files and from checkpoints; no help shows them.
std::string option_today(std::string_view name);

/// A value of the option, or several separated by commas, in present words.
std::string value_today(std::string_view option, std::string_view value);

/// A command line in present words.
std::vector<std::string> words_today(const std::vector<std::string>& words);

/// Other programs' names for one thing, without hyphens.
struct NamesElsewhere {
    std::vector<std::string_view> names;
    std::vector<std::string_view> options;  ///< names here: the first that the command has
    std::string_view remark = {};           ///< difference in meaning, if any
};

std::span<const NamesElsewhere> names_elsewhere();

/// A suggestion for `word`, an option unknown to a command with these `options`, as the end of an error: ";
/// did you mean --steps?". Empty if none is similar.
std::string what_to_type(const std::vector<std::string>& options, std::string_view word);

}  // namespace mantissa::cli
