#include "mantissa/codegen/rounding_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/grid_kernel.h"

namespace mantissa::inline v0::codegen {

namespace {

/// 16 bytes of BF16, as much as one instruction stores.
constexpr std::int64_t numbers_of_piece = 8;
/// Pieces of a thread that has the tensor's scale, so that reads are on their way together.
constexpr std::int64_t pieces_of_thread = 4;
/// Up to so many rows a warp has a square; it takes both columns of a row at once.
constexpr std::int64_t square_of_warp = 16, threads_of_warp = 32;
/// A block of Philox is four words, for numbers 16 apart in each 64 of a row (`rounding_bits`).
constexpr std::int64_t words_of_block = 4, columns_of_blocks = words_of_block * hadamard_size;

std::int64_t power_of_two_from(std::int64_t least) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

}  // namespace

std::int64_t RoundingKernel::columns_of_thread() const {
    if (spread()) return words_of_block;
    if (lies == Block::across) return inner % 2 == 0 && !askew ? 2 : 1;
    return lies == Block::along && hadamard ? hadamard_size : numbers_of_piece;
}

bool RoundingKernel::in_pieces() const {
    const std::int64_t columns = columns_of_thread();
    const std::int64_t row = lies == Block::none ? elements() : lies == Block::along ? depth : inner;
    const bool whole = lies == Block::none || lies == Block::across || block % columns == 0;
    return !askew && !spread() && columns > 1 && row % columns == 0 && whole;
}

std::int64_t RoundingKernel::rows_of_thread() const {
    switch (lies) {
        case Block::none:
            return pieces_of_thread;
        case Block::along:
            return has_four_blocks() ? words_of_block : 1;
        case Block::across:
            return block;
        case Block::square:
            return ceil_div(block, threads_of_scale() / threads_of_row());
    }
    return 1;
}

std::int64_t RoundingKernel::threads_of_row() const {
    return power_of_two_from(ceil_div(block, columns_of_thread()));
}

std::int64_t RoundingKernel::threads_of_scale() const {
    if (lies == Block::along) return threads_of_row();
    if (lies == Block::square) return block <= square_of_warp ? threads_of_warp : grid_threads;
    return 1;
}

std::int64_t RoundingKernel::blocks_deep() const {
    return ceil_div(depth, has_four_blocks() ? columns_of_blocks : block);
}

std::int64_t RoundingKernel::blocks_beside() const {
    if (spread()) return ceil_div(inner, columns_of_blocks) * hadamard_size;
    return ceil_div(inner, lies == Block::square ? block : columns_of_thread());
}

std::int64_t RoundingKernel::threads() const {
    if (lies == Block::none)
        return ceil_div(elements(), numbers_of_piece * pieces_of_thread * grid_threads) * grid_threads;
    return outer * blocks_deep() * blocks_beside() * threads_of_scale();
}

std::string text_of(const RoundingKernel& kernel) {
    constexpr const char* lies[] = {"none", "along", "across", "square"};
    return fmt::format("{} [{}, {}, {}] {} to {} {} in blocks of {} {}{}{}{}{}{}", name_of(kernel.from),
                       kernel.outer, kernel.depth, kernel.inner, kernel.finds_largest ? "largest" : "rounded",
                       limits_of(kernel.element).name, name_of(kernel.rule), kernel.block,
                       lies[static_cast<std::size_t>(kernel.lies)], kernel.hadamard ? ", turned" : "",
                       kernel.random ? ", at random of operation " : "",
                       kernel.random ? std::to_string(kernel.operation) : "", kernel.fp8 ? ", as bytes" : "",
                       kernel.askew ? ", askew" : "");
}

std::string text_of(const TensorScaleKernel& kernel) {
    return fmt::format("scale of {} {} of {} parts{}", limits_of(kernel.element).name, name_of(kernel.rule),
                       kernel.parts, kernel.given ? ", given" : "");
}

}  // namespace mantissa::codegen
