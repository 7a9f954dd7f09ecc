// The header of NumPy's .npy files, parsed strictly: plain arrays of numbers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

/// The contents of the header, checked against the file's length.
struct NpyArray {
    char kind = 0;              ///< 'u' unsigned, 'i' signed, 'f' floating, 'c' complex, 'b' boolean
    std::size_t item_size = 0;  ///< bytes of one element, little-endian
    bool fortran_order = false;
    std::vector<std::uint64_t> shape;
    std::uint64_t count = 0;  ///< product of the shape
    std::span<const std::byte>
        data;  ///< count * item_size bytes, up to the end of the file; may be unaligned
};

/// Whether the bytes begin as a .npy file.
bool is_npy(std::span<const std::byte> file);

/// `file`: the bytes of a whole file, format version 1.0, 2.0 or 3.0. Throws UserError that begins with
/// `source` for big-endian numbers, objects and records, unknown or repeated keys, headers beyond NumPy's own
/// limit of 10,000 characters, and missing or extra data.
NpyArray parse_npy(std::span<const std::byte> file, const std::string& source);

}  // namespace mantissa
