// One launch over many small problems of a kind. A table, the kernel's first parameter, has the place of each
// part. Each block finds its part in it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::codegen {

/// A table of `parts` parts, each of `words` numbers of 64 bits. A part's first number is its first block.
/// Parts stand in the order of their blocks. Parts at the end that a launch does not need begin behind all
/// blocks.
struct PartTable {
    std::int64_t parts = 0;  ///< 0: there is no table
    std::int64_t words = 0;

    friend bool operator==(const PartTable&, const PartTable&) = default;
};

/// Bytes of parameters that any driver takes: CUDA C++ Programming Guide, function parameters.
constexpr std::int64_t parameter_bytes = 4096;

/// As many parts as a launch takes beside so many further parameters, but no more than there are, with all
/// launches equally full.
std::int64_t parts_of_launch(std::int64_t parts, std::int64_t words, std::int64_t further_parameters);

/// The first block of parts that a launch does not need.
constexpr std::int64_t no_block = INT64_MAX;

}  // namespace mantissa::codegen
