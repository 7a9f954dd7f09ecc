#include "mantissa/codegen/attention_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

namespace {

using Makes = AttentionKernel::Makes;

constexpr std::int64_t matrix_rows = 16;
constexpr std::int64_t largest_head = 128;
constexpr std::int64_t swizzled_columns = 64;  // 128 bytes, a row of a tile that wgmma reads

bool of_key_gradients(const AttentionKernel& kernel) { return kernel.makes == Makes::key_gradients; }

std::int64_t rows_of(const AttentionKernel& kernel) {
    return of_key_gradients(kernel) ? kernel.keys : kernel.queries;
}
std::int64_t columns_of(const AttentionKernel& kernel) {
    return of_key_gradients(kernel) ? kernel.queries : kernel.keys;
}

std::string name_of(Makes makes) {
    return makes == Makes::output           ? "output"
           : makes == Makes::query_gradient ? "gradient of queries"
                                            : "gradients of keys and values";
}

std::string text_of(const HeadPlaces& places) {
    return fmt::format("{}+({},{},{})", places.start, places.sequence, places.head, places.position);
}

std::string text_of(const PairScore& score) {
    std::string all;
    for (const PairScore::Operand& operand : score.operands) {
        const PairPlaces& at = operand.places;
        all += fmt::format("; operand {} {}+({},{},{},{})", mantissa::name_of(operand.dtype), at.start,
                           at.sequence, at.head, at.query, at.key);
    }
    for (const auto* code : {&score.remade, &score.mask, &score.sums})
        all += "; " + (*code ? text(**code) : std::string("none"));
    for (const PairScore::Gradient& gradient : score.gradients)
        all += fmt::format("; gradient of {} by {}", gradient.operand, static_cast<int>(gradient.by));
    return all + fmt::format("; masks {} {}", score.mask_by_sequence, score.mask_by_head);
}

/// A warpgroup has 64 rows; each of its threads has as much of them as a thread of a warp with 16 rows.
/// Registers of a thread for heads of 64: forward 16 of queries, 32 of o and 32 of scores with 64 keys. The
/// gradient of queries takes 32, 32 and 32 with 32 keys, the gradients of keys 32, 64 and 32 with 32 queries.
/// So a multiprocessor has room for two blocks of two warpgroups, or, where gradients or a score take more,
/// for three of one. Larger heads take twice as many, in blocks of one warpgroup.
AttentionTiles warpgroup_tiles(const AttentionKernel& kernel, bool is_crowded) {
    AttentionTiles tiles{.rows_of_warp = 16,
                         .head_size = static_cast<int>(align_up(kernel.head_size, swizzled_columns)),
                         .together = 4};
    const bool is_large = tiles.head_size > 64, is_forward = kernel.makes == Makes::output;
    const bool of_keys = of_key_gradients(kernel);
    const bool has_two = !is_large && !of_keys && (is_forward || !kernel.score) && rows_of(kernel) > 64;
    tiles.keeps_both = !is_large;
    tiles.warps = has_two ? 8 : 4;
    tiles.blocks = is_large || is_crowded ? 0 : has_two ? 2 : is_forward ? 4 : 3;
    std::int64_t most = is_large && of_keys ? 16 : is_large || !is_forward ? 32 : 64;
    if (is_crowded) most = std::max(matrix_rows, most / 2);
    tiles.columns = static_cast<int>(std::min(most, align_up(columns_of(kernel), matrix_rows)));
    return tiles;
}

}  // namespace

bool PairScore::makes(ScoreCode::Makes what) const {
    return remade &&
           std::ranges::find(remade->outputs, what, &ScoreCode::Output::makes) != remade->outputs.end();
}

/// Registers of a thread decide; there are 255. Sums of 16 rows take D / 2 of them, 16 rows of an operand D /
/// 4, products with `columns` columns half of these. Shared memory holds two tiles of `columns` rows twice
/// over, as one pair is read while the next is on its way, in 48 KB.
AttentionTiles tiles_of(const AttentionKernel& kernel) {
    // Multipliers, and slopes backward, are numbers of each pair as scores and their gradients are.
    const PairScore* const score = kernel.score.get();
    const bool multiplies = score && score->makes(ScoreCode::Makes::multipliers);
    const bool is_crowded = multiplies || (score && (score->makes(ScoreCode::Makes::slopes) || score->sums));
    if (kernel.by_warpgroups) return warpgroup_tiles(kernel, is_crowded);
    AttentionTiles tiles{.head_size = static_cast<int>(align_up(kernel.head_size, matrix_rows))};
    const bool is_large = tiles.head_size > 64;
    const std::int64_t rows = align_up(rows_of(kernel), matrix_rows);
    tiles.warps = static_cast<int>(std::min<std::int64_t>(4, rows / matrix_rows));
    // Forward, 32 rows of a warp use each matrix of keys twice, where there are as many and registers hold
    // them. Heads of 32 and less have narrow tiles instead: ptxas would rather spill than run fewer blocks.
    const bool is_forward = kernel.makes == Makes::output, is_small = tiles.head_size <= 32;
    tiles.rows_of_warp = is_forward && !is_large && !is_small && !multiplies && rows >= 128 ? 32 : 16;
    const std::int64_t most = is_large                 ? (of_key_gradients(kernel) ? 16 : 32)
                              : is_forward && is_small ? 32
                                                       : 64;
    tiles.columns =
        static_cast<int>(std::min(is_crowded && !is_forward ? std::max(matrix_rows, most / 2) : most,
                                  align_up(columns_of(kernel), matrix_rows)));
    tiles.keeps_both = !is_large;
    return tiles;
}

std::string refuse_attention(const AttentionKernel& kernel) {
    if (kernel.dtype != DType::bf16 && kernel.dtype != DType::f16)
        return fmt::format("it is written for bf16 and f16, got {}", mantissa::name_of(kernel.dtype));
    if (kernel.head_size > largest_head)
        return fmt::format("it holds heads of up to {} elements in registers, got {}", largest_head,
                           kernel.head_size);
    if (kernel.sequences * kernel.heads * kernel.queries * kernel.head_size == 0)
        return "it needs one element or more";
    if (kernel.score && kernel.keys == 0) return "with a score it needs one key or more";
    if (!(kernel.scale > 0)) return fmt::format("its scale must be above 0, got {}", kernel.scale);
    if (std::max(kernel.queries, kernel.keys) > std::numeric_limits<std::int32_t>::max() / 2)
        return "it counts positions in i32";
    return "";
}

bool moves_whole_rows(const AttentionKernel& kernel) {
    constexpr std::int64_t at_a_time = 8;
    if (kernel.askew || kernel.head_size % at_a_time != 0) return false;
    for (const HeadPlaces& places : {kernel.q, kernel.k, kernel.v, kernel.o})
        for (const std::int64_t step : {places.start, places.sequence, places.head, places.position})
            if (step % at_a_time != 0) return false;
    return true;
}

std::int64_t blocks_of(const AttentionKernel& kernel) {
    const std::int64_t heads = of_key_gradients(kernel) ? kernel.heads / kernel.group : kernel.heads;
    return kernel.sequences * heads * ceil_div(rows_of(kernel), std::int64_t{tiles_of(kernel).rows()});
}

std::string text_of(const AttentionKernel& kernel) {
    return fmt::format(
        "{} {} of {} sequences, {} heads in groups of {}, {} queries, {} keys, {} elements{}, scale {}; q "
        "{}, k "
        "{}, v {}, o {}{}{}{}{}",
        name_of(kernel.makes), mantissa::name_of(kernel.dtype), kernel.sequences, kernel.heads, kernel.group,
        kernel.queries, kernel.keys, kernel.head_size, kernel.causal ? ", causal" : "", kernel.scale,
        text_of(kernel.q), text_of(kernel.k), text_of(kernel.v), text_of(kernel.o),
        kernel.lse_gradient ? ", and of lse" : "", kernel.askew ? ", askew" : "",
        kernel.by_warpgroups ? ", by warpgroups" : "", kernel.score ? text_of(*kernel.score) : "");
}

std::string text_of(const SeenTilesKernel& kernel) { return "seen tiles of " + text_of(kernel.of); }

std::int64_t SeenTilesKernel::tables() const {
    return (of.score->mask_by_sequence ? of.sequences : 1) * (of.score->mask_by_head ? of.heads : 1);
}
std::int64_t SeenTilesKernel::row_tiles() const {
    return ceil_div(rows_of(of), std::int64_t{tiles_of(of).rows()});
}
std::int64_t SeenTilesKernel::column_tiles() const {
    return ceil_div(columns_of(of), std::int64_t{tiles_of(of).columns});
}

std::vector<std::size_t> score_gradients_of(const AttentionKernel& kernel) {
    std::vector<std::size_t> made;
    if (!kernel.score || kernel.makes == Makes::output) return made;
    for (std::size_t i = 0; i < kernel.score->gradients.size(); ++i)
        if ((kernel.score->gradients[i].by == PairScore::Gradient::By::key_rows) == of_key_gradients(kernel))
            made.push_back(i);
    return made;
}

std::size_t parameters_of(const AttentionKernel& kernel) {
    const std::size_t plain = kernel.makes == Makes::output ? 5 : of_key_gradients(kernel) ? 7 : 8;
    const std::size_t of_score = kernel.score ? (kernel.score->mask ? 1 : 0) + kernel.score->operands.size() +
                                                    score_gradients_of(kernel).size()
                                              : 0;
    return plain + of_score + (kernel.lse_gradient ? 1 : 0);
}

}  // namespace mantissa::codegen
