// How weights in a file may differ from a model's, and do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

/// Whether a file must have every parameter, of its shape, and nothing else; or whether what fits is taken.
enum class Match : std::uint8_t { strict, by_name };

/// Tensors of a file and a model that do not fit, by the names in the file.
struct UnfitWeights {
    std::vector<std::string> missing, unknown;
    std::vector<std::string> unlike;  ///< of another shape or type, each with both: "a" has shape [3], ...

    std::size_t count() const { return missing.size() + unknown.size() + unlike.size(); }
    /// In a line, of each kind the first three and how many more there are; empty where all fits.
    std::string text() const;
};

}  // namespace mantissa
