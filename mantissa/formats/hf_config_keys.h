// Keys in a config.json of Hugging Face's library that belong to no single family: which of them may change a
// model's values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// Throws UserError, beginning with `source`, that names the first key of `config` that may change the
/// model's values. Allowed are keys `of_family`, which the caller handles, and keys without effect for any
/// causal text model.
void require_known_keys(const nlohmann::json& config, std::span<const std::string_view> of_family,
                        const std::string& source);

/// The largest dropout among these members; missing ones count as 0.
double largest_dropout(const nlohmann::json& config, std::span<const std::string_view> names);

}  // namespace mantissa
