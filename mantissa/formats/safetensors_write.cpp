#include "mantissa/formats/safetensors_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/safetensors.h"

namespace mantissa::inline v0 {

namespace {

/// A transposed tensor, and one that is read from elsewhere, goes in pieces of about this size: within L2,
/// and large for a write.
constexpr std::size_t gather_bytes = 1 << 20;

std::vector<std::int64_t> shape_in_file(const TensorToWrite& item) {
    std::vector<std::int64_t> shape = item.tensor.shape;
    if (item.orientation == Orientation::transposed) {
        check(shape.size() == 2, "a transposed tensor has two dimensions");
        std::swap(shape[0], shape[1]);
    }
    return shape;
}

/// Tensor numbers in the reference writer's order: widest type first, so that each begins aligned to its
/// elements.
std::vector<std::size_t> order_in_file(std::span<const TensorToWrite> tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const TensorView &x = tensors[a].tensor, &y = tensors[b].tensor;
        const std::size_t x_size = size_of(x.dtype), y_size = size_of(y.dtype);
        return std::tie(y_size, x.dtype, x.name) < std::tie(x_size, y.dtype, y.name);
    });
    return order;
}

std::string dump(const nlohmann::ordered_json& header, const std::string& source) {
    try {
        return header.dump();
    } catch (const nlohmann::json::type_error&) {
        throw UserError(source + ": a name or a metadata text is not valid UTF-8, which the format demands");
    }
}

template <std::size_t element>
void transpose_elements(const TransposedRows& which, const std::byte* from, std::byte* to) {
    // Blocks of 16 x 16 keep both sides in the first cache; memcpy because neither side need be aligned.
    constexpr std::size_t block = 16;
    for (std::size_t c0 = which.begin; c0 < which.end; c0 += block)
        for (std::size_t r0 = 0; r0 < which.rows; r0 += block)
            for (std::size_t c = c0; c < std::min(c0 + block, which.end); ++c)
                for (std::size_t r = r0; r < std::min(r0 + block, which.rows); ++r)
                    std::memcpy(to + ((c - which.begin) * which.rows + r) * element,
                                from + (r * which.columns + c) * element, element);
}

}  // namespace

void copy_transposed(const TransposedRows& which, const std::byte* from, std::byte* to) {
    switch (which.element) {
        case 1:
            return transpose_elements<1>(which, from, to);
        case 2:
            return transpose_elements<2>(which, from, to);
        case 4:
            return transpose_elements<4>(which, from, to);
        case 8:
            return transpose_elements<8>(which, from, to);
        default:
            throw InternalError("an element has 1, 2, 4 or 8 bytes");
    }
}

SafetensorsLayout lay_out_safetensors(std::span<const TensorToWrite> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& source) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    SafetensorsLayout layout;
    std::map<std::string_view, int> seen;
    std::uint64_t position = 0;
    for (const std::size_t i : order_in_file(tensors)) {
        const TensorView& tensor = tensors[i].tensor;
        if (tensor.name == "__metadata__" || seen[tensor.name]++)
            throw UserError(fmt::format("{}: cannot write a tensor named \"{}\": the name is {}", source,
                                        tensor.name,
                                        tensor.name == "__metadata__" ? "reserved" : "given twice"));
        const std::uint64_t bytes = byte_count(tensor.dtype, tensor.shape);
        header.push_back({tensor.name,
                          {{"dtype", safetensors_name_of(tensor.dtype)},
                           {"shape", shape_in_file(tensors[i])},
                           {"data_offsets", {position, position + bytes}}}});
        layout.pieces.push_back({i, position, position + bytes});
        position += bytes;
    }
    std::string text = dump(header, source);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > safetensors_max_header)
        throw UserError(fmt::format("{}: header of {} bytes, the format allows {}", source, text.size(),
                                    safetensors_max_header));
    for (int i = 0; i < 8; ++i) layout.header.push_back(static_cast<char>(text.size() >> (8 * i)));
    layout.header += text;
    for (SafetensorsLayout::Piece& piece : layout.pieces) {
        piece.begin += layout.header.size();
        piece.end += layout.header.size();
    }
    layout.file_size = layout.header.size() + position;
    return layout;
}

namespace {

using Sink = FunctionRef<void(std::span<const std::byte>)>;

void stream_as_is(const TensorToWrite& item, std::uint64_t bytes, Sink sink) {
    if (!item.read) return sink({item.tensor.data, bytes});
    std::vector<std::byte> piece;
    for (std::uint64_t begin = 0; begin < bytes; begin += piece.size()) {
        piece.resize(std::min<std::uint64_t>(gather_bytes, bytes - begin));
        item.read(begin, piece);
        sink(piece);
    }
}

/// A transposed tensor that is read from elsewhere is read whole: a column of it lies in every piece.
void stream_transposed(const TensorToWrite& item, std::uint64_t bytes, Sink sink) {
    const TensorView& tensor = item.tensor;
    std::vector<std::byte> whole(item.read ? bytes : 0);
    if (item.read) item.read(0, whole);
    const auto rows = static_cast<std::size_t>(tensor.shape[0]),
               columns = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t row_bytes = rows * size_of(tensor.dtype);
    const std::size_t step = std::max<std::size_t>(1, gather_bytes / row_bytes);
    std::vector<std::byte> gathered;
    for (std::size_t begin = 0; begin < columns; begin += step) {
        const std::size_t end = std::min(begin + step, columns);
        gathered.resize((end - begin) * row_bytes);
        copy_transposed(
            {.rows = rows, .columns = columns, .element = size_of(tensor.dtype), .begin = begin, .end = end},
            item.read ? whole.data() : tensor.data, gathered.data());
        sink(gathered);
    }
}

}  // namespace

void stream_safetensors(const SafetensorsLayout& layout, std::span<const TensorToWrite> tensors, Sink sink) {
    sink(std::as_bytes(std::span(layout.header)));
    for (const SafetensorsLayout::Piece& piece : layout.pieces) {
        const TensorToWrite& item = tensors[piece.tensor];
        if (piece.begin == piece.end) continue;
        if (item.orientation == Orientation::as_is)
            stream_as_is(item, piece.end - piece.begin, sink);
        else
            stream_transposed(item, piece.end - piece.begin, sink);
    }
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
    const SafetensorsLayout layout = lay_out_safetensors(tensors, metadata, path.string());
    AtomicFile file(path, layout.file_size);
    stream_safetensors(layout, tensors, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
    std::vector<TensorToWrite> items;
    for (const TensorView& tensor : tensors) items.push_back({tensor});
    write_safetensors(path, std::span<const TensorToWrite>(items), metadata);
}

}  // namespace mantissa
