#include "mantissa/train/state_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0 {

namespace {

TensorSpec spec_of(const State& state) {
    // States kept as codes and scales are given in FP32.
    const DType dtype = has_codes(state.type.layout) ? DType::f32 : state.type.dtype;
    return {state.name, dtype, state.shard_of.value_or(state.type.shape).extents()};
}

std::int64_t elements_of(const TensorSpec& spec) { return Shape(spec.shape).elements(); }

/// The part that a name denotes; none: a whole tensor.
struct NameOfPart {
    std::string state;
    Shard part;
};
std::optional<NameOfPart> parsed_part(const std::string& name) {
    const std::size_t open = name.rfind('['), colon = name.rfind(':');
    if (!name.ends_with(']') || open == name.npos || colon == name.npos || colon < open) return std::nullopt;
    std::int64_t first = 0, last = 0;
    const auto number = [&](std::size_t from, std::size_t to, std::int64_t& value) {
        const auto result = std::from_chars(name.data() + from, name.data() + to, value);
        return result.ec == std::errc() && result.ptr == name.data() + to;
    };
    if (!number(open + 1, colon, first) || !number(colon + 1, name.size() - 1, last) || first < 0 ||
        last <= first)
        return std::nullopt;
    return NameOfPart{name.substr(0, open), {first, last - first}};
}

/// Number of the exchange for reading together; no sum of a step has it.
constexpr int read_number = -3;

/// Reads bytes of a state from `begin` on; every rank holds some of them.
void read_together(const StateBlock& block, const TensorSpec& state, std::int64_t begin,
                   std::span<std::byte> to, Ranks& ranks) {
    const auto size = static_cast<std::int64_t>(size_of(state.dtype));
    std::vector<std::vector<std::span<std::byte>>> by_rank;
    for (int rank = 0; rank < ranks.size(); ++rank) {
        const Shard part = shard_of(elements_of(state), ranks.size(), rank);
        const std::int64_t first = std::max(begin, part.first * size);
        const std::int64_t last = std::min(begin + std::ssize(to), (part.first + part.count) * size);
        std::span<std::byte> theirs;
        if (first < last) theirs = to.subspan(first - begin, static_cast<std::size_t>(last - first));
        if (rank == ranks.rank() && !theirs.empty())
            block.read(state.name, first - part.first * size, theirs);
        by_rank.push_back({theirs});
    }
    ranks.start_gather(read_number, std::move(by_rank));
    ranks.wait(read_number);
}

}  // namespace

std::vector<TensorSpec> specs_of(const StateBlock& block, Chosen chosen) {
    std::vector<TensorSpec> specs;
    for (const State& state : block.states())
        if (chosen(state)) specs.push_back(spec_of(state));
    return specs;
}

std::vector<TensorToWrite> tensors_of(const StateBlock& block, Chosen chosen, Ranks* ranks) {
    std::vector<TensorToWrite> tensors;
    for (const State& state : block.states()) {
        if (!chosen(state)) continue;
        check(!state.shard_of || ranks, "what lies in parts is put together by ranks");
        const TensorSpec spec = spec_of(state);
        TensorToWrite& tensor = tensors.emplace_back();
        tensor.tensor = {spec.name, spec.dtype, spec.shape};
        if (state.shard_of)
            tensor.read = [&block, spec, ranks](std::uint64_t begin, std::span<std::byte> to) {
                read_together(block, spec, static_cast<std::int64_t>(begin), to, *ranks);
            };
        else
            tensor.read = [&block, name = spec.name](std::uint64_t begin, std::span<std::byte> to) {
                block.read(name, static_cast<std::int64_t>(begin), to);
            };
    }
    return tensors;
}

std::vector<TensorToWrite> parts_of_states(const StateBlock& block, Chosen chosen, RankOf self) {
    std::vector<TensorToWrite> tensors;
    for (const State& state : block.states()) {
        if (!chosen(state) || (!state.shard_of && self.rank != 0)) continue;
        TensorSpec spec = spec_of(state);
        if (state.shard_of) {
            const Shard part = shard_of(elements_of(spec), self.ranks, self.rank);
            if (part.count == 0) continue;
            spec.name = fmt::format("{}[{}:{}]", state.name, part.first, part.first + part.count);
            spec.shape = {part.count};
        }
        TensorToWrite& tensor = tensors.emplace_back();
        tensor.tensor = {spec.name, spec.dtype, spec.shape};
        tensor.read = [&block, name = state.name](std::uint64_t begin, std::span<std::byte> to) {
            block.read(name, static_cast<std::int64_t>(begin), to);
        };
    }
    return tensors;
}

SavedStates::SavedStates(std::span<const SafetensorsFile* const> files) : source_(files[0]->path().string()) {
    for (const SafetensorsFile* file : files)
        for (TensorView& view : file->views()) {
            const std::int64_t elements = Shape(view.shape).elements();
            const std::optional<NameOfPart> part = parsed_part(view.name);
            if (part && (view.shape.size() != 1 || part->part.count != elements))
                throw UserError(fmt::format("{}: tensor '{}' has {} elements", file->path().string(),
                                            view.name, elements));
            const std::string name = part ? part->state : view.name;
            pieces_[name].push_back({file, std::move(view), part ? part->part : Shard{0, elements}, !part});
        }
    for (auto& [name, pieces] : pieces_)
        std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.part.first; });
}

void SavedStates::require(const TensorSpec& state) const {
    const auto found = pieces_.find(state.name);
    std::int64_t next = 0;
    bool good = found != pieces_.end();
    if (good)
        for (const Piece& piece : found->second) {
            good = good && piece.view.dtype == state.dtype && piece.part.first == next &&
                   (!piece.is_whole || piece.view.shape == state.shape);
            next = piece.part.first + piece.part.count;
        }
    if (!good || next != elements_of(state))
        throw UserError(fmt::format("{}: tensor '{}' is missing or is not {}{}", source_, state.name,
                                    name_of(state.dtype), shape_text(state.shape)));
}

void SavedStates::read(const TensorSpec& state, Shard part, std::span<std::byte> to) const {
    const auto size = static_cast<std::int64_t>(size_of(state.dtype));
    check(static_cast<std::int64_t>(to.size()) == part.count * size, "there is room for the elements");
    for (const Piece& piece : pieces_.at(state.name)) {
        const std::int64_t first = std::max(part.first, piece.part.first);
        const std::int64_t last = std::min(part.first + part.count, piece.part.first + piece.part.count);
        if (first >= last) continue;
        std::memcpy(to.data() + (first - part.first) * size,
                    piece.view.data + (first - piece.part.first) * size,
                    static_cast<std::size_t>((last - first) * size));
        piece.file->release();
    }
}

}  // namespace mantissa
