#include "mantissa/formats/safetensors_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/formats/safetensors.h"

namespace mantissa::inline v0 {

namespace {

/// Size of pieces for tensors that are reordered or read from elsewhere: within L2, and large for a write.
constexpr std::size_t gather_bytes = 1 << 20;

/// Tensor indexes in the reference writer's order: widest type first, so that each is aligned to its
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

}  // namespace

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
                           {"shape", shape_in_file(tensors[i].order, tensor.shape)},
                           {"data_offsets", {position, position + bytes}}}});
        layout.pieces.push_back({i, position, position + bytes});
        position += bytes;
    }
    std::string text = dump(header, source);
    text.resize(align_up(text.size(), 8), ' ');
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

/// A reordered tensor from elsewhere is read whole: a row of the file may need elements from all of it.
void stream_ordered(const TensorToWrite& item, std::uint64_t bytes, Sink sink) {
    const TensorView& tensor = item.tensor;
    std::vector<std::byte> whole(item.read ? bytes : 0);
    if (item.read) item.read(0, whole);
    const OrderedTensor ordered = into_file(item.order, tensor.shape, size_of(tensor.dtype));
    const std::size_t rows = ordered.rows(), row_bytes = ordered.row_bytes();
    const std::size_t step = std::max<std::size_t>(1, gather_bytes / row_bytes);
    std::vector<std::byte> gathered;
    for (std::size_t begin = 0; begin < rows; begin += step) {
        const std::size_t end = std::min(begin + step, rows);
        gathered.resize((end - begin) * row_bytes);
        copy_ordered(ordered, begin, end, item.read ? whole.data() : tensor.data, gathered.data());
        sink(gathered);
    }
}

}  // namespace

void stream_safetensors(const SafetensorsLayout& layout, std::span<const TensorToWrite> tensors, Sink sink) {
    sink(std::as_bytes(std::span(layout.header)));
    for (const SafetensorsLayout::Piece& piece : layout.pieces) {
        const TensorToWrite& item = tensors[piece.tensor];
        if (piece.begin == piece.end) continue;
        if (item.order.keeps())
            stream_as_is(item, piece.end - piece.begin, sink);
        else
            stream_ordered(item, piece.end - piece.begin, sink);
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
