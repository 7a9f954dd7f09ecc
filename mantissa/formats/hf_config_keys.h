// The keys of a config.json of Hugging Face's library that are no family's own: which ones may change what a
// model computes, and which do not.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// Throws UserError, beginning with `source`, that names the first key of `config` that may change what a
/// model computes: one that is neither among `of_family`, which the caller reads, holds to a value or knows
/// to be without effect, nor without effect for any model of text that predicts its next token.
void require_known_keys(const nlohmann::json& config, std::span<const std::string_view> of_family,
                        const std::string& source);

/// The largest of these members, which say how much training drops; those that are missing are 0.
double largest_dropout(const nlohmann::json& config, std::span<const std::string_view> names);

}  // namespace mantissa
