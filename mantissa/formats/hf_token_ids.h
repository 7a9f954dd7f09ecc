// The ids of the tokens that begin and end a text, as Hugging Face's library keeps them beside a model: in
// generation_config.json, else in config.json. Files before transformers 4.26 have only the latter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

struct HfTokenIds {
    std::optional<std::int64_t> begin = {};  ///< bos_token_id
    std::vector<std::int64_t> ends = {};     ///< eos_token_id; empty: the files do not say
};

/// The ids that the files in this folder give; nothing where there are none. A config.json beside a
/// state.json is not asked: earlier versions of this program wrote the last id of the vocabulary there,
/// whatever it stood for, and this one writes generation_config.json. Throws UserError, naming the file, for
/// an id that is neither a number of 0 or more nor a list of them.
HfTokenIds read_hf_token_ids(const std::filesystem::path& folder);

/// The text of config.json with these ids. A missing id is null there, since a reader would take its own
/// family's number for an id that is left out.
std::string with_token_ids(const std::string& config, const HfTokenIds& ids);

/// The text of generation_config.json.
std::string hf_generation_config(const HfTokenIds& ids);

}  // namespace mantissa
