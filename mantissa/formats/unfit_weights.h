// Allowed and actual differences between the weights of a file and of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

/// `strict`: a file must have all parameters, in shape, and nothing else; `by_name`: fitting ones are read.
enum class Match : std::uint8_t { strict, by_name };

/// Tensors of a file and a model that do not fit, by the file's names.
struct UnfitWeights {
    std::vector<std::string> missing, unknown;
    std::vector<std::string> unlike;  ///< of another shape or type, each with both: "a" has shape [3], ...

    std::size_t count() const { return missing.size() + unknown.size() + unlike.size(); }
    /// In a line, the first three of each kind and the number of others; empty if all fit.
    std::string text() const;
};

}  // namespace mantissa
