// Writes safetensors files: laid out first, so that size and positions are known, then streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/formats/axis_order.h"
#include "mantissa/formats/tensor_view.h"

namespace mantissa::inline v0 {

/// Copies the bytes of a tensor from byte `begin` on into `to`.
using TensorReader = std::function<void(std::uint64_t begin, std::span<std::byte> to)>;

struct TensorToWrite {
    TensorView tensor;
    AxisOrder order = {};
    /// Reads a tensor that is not in memory, piece by piece; `data` is then unused.
    TensorReader read = {};
};

/// The layout of a file.
struct SafetensorsLayout {
    struct Piece {
        std::size_t tensor = 0;            ///< index into the given tensors
        std::uint64_t begin = 0, end = 0;  ///< bytes, counted from the start of the file
    };
    std::string
        header;  ///< the length and the JSON text, padded with spaces so that data begins at a multiple of 8
    std::vector<Piece> pieces;  ///< in the reference writer's order: widest type first, then by name
    std::uint64_t file_size = 0;
};

/// `source` is the path of the future file. Throws UserError for a name given twice, the reserved name
/// `__metadata__`, and a header beyond the format's limit.
SafetensorsLayout lay_out_safetensors(std::span<const TensorToWrite> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& source);

/// Calls `sink` with the bytes of the file in order; no call crosses the end of a tensor. `tensors`: as given
/// to lay_out_safetensors.
void stream_safetensors(const SafetensorsLayout& layout, std::span<const TensorToWrite> tensors,
                        FunctionRef<void(std::span<const std::byte>)> sink);

/// Writes the file atomically (see base/atomic_file.h).
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace mantissa
