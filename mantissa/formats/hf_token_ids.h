// The ids of the tokens that begin and end a text, in Hugging Face's files beside a model:
// generation_config.json, else config.json. Before transformers 4.26 there was only the latter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

struct HfTokenIds {
    std::optional<std::int64_t> begin = {};  ///< bos_token_id
    std::vector<std::int64_t> ends = {};     ///< eos_token_id; empty: not in the files
};

/// The ids in this folder's files; empty if there are none. A config.json beside a state.json is ignored:
/// earlier versions of this program wrote the last id of the vocabulary there, whatever its meaning, and this
/// one writes generation_config.json. Throws UserError, naming the file, for an id that is neither a number
/// of 0 or more nor a list of such numbers.
HfTokenIds read_hf_token_ids(const std::filesystem::path& folder);

/// The text of config.json with these ids. A missing id is written as null, since a reader would use its
/// family's default for an absent one.
std::string with_token_ids(const std::string& config, const HfTokenIds& ids);

/// The text of generation_config.json.
std::string hf_generation_config(const HfTokenIds& ids);

}  // namespace mantissa
