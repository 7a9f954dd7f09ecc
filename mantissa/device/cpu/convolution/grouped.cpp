#include "mantissa/device/cpu/convolution/grouped.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Items that keep any number of threads about equally busy.
constexpr std::int64_t enough_items = 64;
/// Bytes of the source that an item reads. With the bytes that it writes, they are half of an L2 of 1 MB. So
/// lines that one block reads in part are still there for the next.
constexpr std::int64_t item_bytes = 256 << 10;

/// All outputs along an axis meet all taps.
std::vector<WindowPhase> phases_of_output(const ConvolutionAxis& axis) {
    return {{.count = axis.output,
             .taps = axis.filter,
             .source_first = -axis.before,
             .source_step = axis.stride,
             .distance = axis.dilation}};
}

/// Pixels of x along an axis, every `stride`, meet the same taps of dy; the last tap comes first.
std::vector<WindowPhase> phases_of_input(const ConvolutionAxis& axis) {
    std::vector<WindowPhase> phases;
    std::int64_t packed = 0;
    for (std::int64_t first = 0; first < std::min(axis.stride, axis.image); ++first) {
        const std::int64_t step = axis.stride / std::gcd(axis.stride, axis.dilation);
        std::int64_t tap = 0;
        while (tap < step && (first + axis.before - tap * axis.dilation) % axis.stride != 0) ++tap;
        WindowPhase phase{.count = ceil_div(axis.image - first, axis.stride)};
        if (tap < step && tap < axis.filter) {
            phase.taps = (axis.filter - 1 - tap) / step + 1;
            phase.filter_first = tap + (phase.taps - 1) * step;
            phase.filter_step = -step;
            phase.packed_first = packed;
            packed += phase.taps;
            phase.distance = step * axis.dilation / axis.stride;
            phase.source_first = (first + axis.before - phase.filter_first * axis.dilation) / axis.stride;
        }
        phases.push_back(phase);
    }
    return phases;
}

/// Columns that are read of a row, with the columns of outputs that fill up whole vectors.
void pad_columns(SourcePlanes& source, const std::vector<WindowPhase>& phases) {
    constexpr std::int64_t columns_at_once = 7;  // or twice as many, where more are left
    std::int64_t last = source.columns;
    for (const WindowPhase& phase : phases) {
        source.margin = std::max(source.margin, -phase.source_first);
        last = std::max(last, phase.source_first +
                                  (align_up(phase.count, columns_at_once) - 1) * phase.source_step +
                                  (std::max<std::int64_t>(phase.taps, 1) - 1) * phase.distance + 1);
    }
    source.padded_columns = source.margin + std::max(last, source.columns + source.pixels_apart);
}

/// Rows of the source that are needed at a time, while rows of the output are made in order.
std::int64_t rows_at_once(const std::vector<WindowPhase>& phases, std::int64_t rows, std::int64_t most) {
    const auto count = static_cast<std::int64_t>(phases.size());
    const auto min_of = [&](std::int64_t row) {
        const WindowPhase& phase = phases[row % count];
        return phase.source_first + row / count * phase.source_step;
    };
    std::int64_t at_once = 1, greatest = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
        const WindowPhase& phase = phases[row % count];
        if (phase.taps > 0) greatest = std::max(greatest, min_of(row) + (phase.taps - 1) * phase.distance);
        std::int64_t least = greatest;
        for (std::int64_t later = row; later < std::min(rows, row + count); ++later)
            if (phases[later % count].taps > 0) least = std::min(least, min_of(later));
        at_once = std::max(at_once, greatest - least + 1);
    }
    return std::min(at_once, most);
}

/// Chooses how many blocks a thread does at a time. Planes of their rows fill a part of an L1; where a pixel
/// of the source meets few taps, memory bounds the speed, and rows are fetched ahead. Rows that are read as
/// they lie, and the filter, fill a part of an L2, so that the second block finds the lines that it shares
/// with the first.
void choose_blocks(SourcePlanes& source, const Convolution& of, std::int64_t strides, std::int64_t most) {
    constexpr std::int64_t plane_bytes = 32 << 10, row_bytes = 128 << 10;
    const std::int64_t taps = of.vertical.filter * of.horizontal.filter;
    const bool in_place = source.lanes_from == LaneSource::image;
    const std::int64_t floats =
        in_place ? (source.slots * source.columns + taps) * block_lanes : source.floats();
    source.blocks =
        std::clamp<std::int64_t>((in_place ? row_bytes : plane_bytes) / float_bytes / floats, 1, most);
    if (!in_place && taps * of.group_channels() < 9 * strides) source.rows_ahead = of.vertical.stride;
}

/// Windows that have kernels for one plane of all channels of a block.
bool reads_one_plane(const ConvolutionAxis& across) {
    return across.filter == 3 && across.stride <= 2 && across.dilation == 1;
}

/// Groups of one channel are read in place. Groups of several channels with windows of three have kernels
/// that read one plane: planes of so many channels would not fit L1.
LaneSource lane_source(const SourcePlanes& source, const ConvolutionAxis& across, Isa isa) {
    const std::int64_t group = source.group_channels;
    if (group == 1 && source.group_outputs == 1) return LaneSource::image;
    if (!reads_one_plane(across)) return LaneSource::planes;
    if (source.group_outputs == block_lanes) return LaneSource::broadcast;
    const bool permutes = isa >= Isa::avx512;
    return permutes && group > 1 && group == source.group_outputs && block_lanes % group == 0
               ? LaneSource::permuted
               : LaneSource::planes;
}

}  // namespace

std::string refuse_grouped(const Convolution& of, GroupedResult makes) {
    constexpr std::int64_t max_channels = 16;  // a product a group fills the unit from there on
    const std::int64_t most = std::max(of.group_channels(), of.group_filters());
    if (of.horizontal.stride > max_phases)
        return fmt::format("its stride is up to {}, got {}", max_phases, of.horizontal.stride);
    if (most > max_channels) return fmt::format("groups have up to {} channels, got {}", max_channels, most);
    const std::int64_t outputs = makes == GroupedResult::gradient_of_input ? of.channels : of.filters;
    const ConvolutionAxis& across = of.horizontal;
    if (of.groups == 1 && (outputs != block_lanes || !reads_one_plane(across)))
        return fmt::format(
            "one group has windows of three and gives {} channels, which are half a tile of a product",
            block_lanes);
    return "";
}

std::string refuse_pairs(const Convolution& of, GroupedResult makes) {
    const std::int64_t read =
        makes == GroupedResult::gradient_of_input ? of.group_filters() : of.group_channels();
    if (makes == GroupedResult::gradient_of_filter)
        return read > 1 ? "" : "pairs of pixels gain nothing where groups have one channel";
    return read % 2 == 0 ? "" : fmt::format("groups must have pairs of channels, got {}", read);
}

GroupedConvolution::GroupedConvolution(const Convolution& of, GroupedResult makes, Isa isa, bool pairs,
                                       int threads)
    : of_(of), makes_(makes), kernels_(grouped_kernels(isa)), pairs_(pairs), threads_(threads) {
    check(!pairs || kernels_.pairs, "kernels of this level take pairs");
    if (makes == GroupedResult::gradient_of_filter)
        plan_filter_gradient(isa);
    else
        plan_sums(isa);
}

void GroupedConvolution::plan_sums(Isa isa) {
    const bool forward = makes_ == GroupedResult::output;
    const auto phases_of = forward ? phases_of_output : phases_of_input;
    row_phases_ = phases_of(of_.vertical);
    column_phases_ = phases_of(of_.horizontal);
    const Shape from = forward ? of_.x_shape() : of_.y_shape(), to = forward ? of_.y_shape() : of_.x_shape();
    sums_.source = {.rows = from[1],
                    .columns = from[2],
                    .channels = from[3],
                    .group_channels = forward ? of_.group_channels() : of_.group_filters(),
                    .group_outputs = forward ? of_.group_filters() : of_.group_channels()};
    sums_.rows = to[1];
    sums_.columns = to[2];
    sums_.channels = to[3];
    sums_.filters = of_.filters;
    sums_.of_gradient = !forward;
    sums_.filter_rows = of_.vertical.filter;
    sums_.filter_columns = of_.horizontal.filter;
    sums_.row_phases = static_cast<std::int64_t>(row_phases_.size());
    sums_.column_phases = static_cast<std::int64_t>(column_phases_.size());
    sums_.source.lanes_from = lane_source(sums_.source, of_.horizontal, isa);
    sums_.source.channel_pairs = pairs_;
    if (pairs_) {
        sums_.source.channels /= 2;
        sums_.source.group_channels /= 2;
    }
    pad_columns(sums_.source, column_phases_);
    sums_.source.slots = rows_at_once(row_phases_, sums_.rows, sums_.source.rows);
    blocks_ = ceil_div(sums_.channels, block_lanes);
    // Bands of rows read some rows of their neighbours again.
    const std::int64_t row_bytes = sums_.columns * sums_.channels * float_bytes;
    rows_of_item_ =
        std::clamp(item_bytes / row_bytes, std::min(4 * sums_.filter_rows, sums_.rows), sums_.rows);
    const std::int64_t items = of_.images * ceil_div(sums_.rows, rows_of_item_);
    blocks_of_item_ = std::max(std::min<std::int64_t>(4, blocks_), blocks_ * items / enough_items);
    blocks_of_item_ = std::min(blocks_of_item_, blocks_);
    choose_blocks(sums_.source, of_, forward ? of_.vertical.stride * of_.horizontal.stride : 1,
                  blocks_of_item_);
    scratch_floats_ =
        sums_.source.floats() + floats_of_pointers(sums_.filter_rows * sums_.source.group_channels);
    shared_floats_ =
        blocks_ * block_lanes * sums_.filter_rows * sums_.filter_columns * sums_.source.group_channels;
}

void GroupedConvolution::plan_filter_gradient(Isa isa) {
    row_phases_ = phases_of_output(of_.vertical);
    column_phases_ = phases_of_output(of_.horizontal);
    gradient_.source = {.rows = of_.vertical.image,
                        .columns = of_.horizontal.image,
                        .channels = of_.channels,
                        .group_channels = of_.group_channels(),
                        .group_outputs = of_.group_filters()};
    gradient_.rows = of_.vertical.output;
    gradient_.columns = of_.horizontal.output;
    gradient_.channels = of_.filters;
    gradient_.vertical = of_.vertical;
    gradient_.horizontal = of_.horizontal;
    gradient_.source.lanes_from = lane_source(gradient_.source, of_.horizontal, isa);
    if (pairs_) gradient_.source.pixels_apart = of_.horizontal.stride;
    pad_columns(gradient_.source, column_phases_);
    gradient_.source.slots = rows_at_once(row_phases_, gradient_.rows, gradient_.source.rows);
    blocks_ = ceil_div(of_.filters, block_lanes);
    blocks_of_item_ = std::min<std::int64_t>(4, blocks_);
    choose_blocks(gradient_.source, of_, of_.vertical.stride * of_.horizontal.stride, blocks_of_item_);
    const std::int64_t rows = of_.images * gradient_.rows;
    rows_of_item_ = ceil_div(rows, std::min(ceil_div(enough_items, ceil_div(blocks_, blocks_of_item_)),
                                            ceil_div(rows, 4 * of_.vertical.filter)));
    gradient_.parts = ceil_div(rows, rows_of_item_);
    scratch_floats_ = gradient_.source.floats() +
                      floats_of_pointers(of_.vertical.filter * of_.group_channels()) +
                      (gradient_.columns + 1) * block_lanes;
    shared_floats_ = gradient_.parts * blocks_ * block_lanes * of_.depth();
}

std::int64_t GroupedConvolution::workspace_bytes() const {
    return (shared_floats_ + threads_ * scratch_floats_) * float_bytes;
}

void GroupedConvolution::run(const GroupedArguments& arguments, ThreadPool& pool) const {
    check(pool.threads() <= threads_, "a convolution in groups is planned for its pool's threads");
    if (makes_ == GroupedResult::gradient_of_filter)
        run_filter_gradient(arguments, pool);
    else
        run_sums(arguments, pool);
}

void GroupedConvolution::run_sums(const GroupedArguments& arguments, ThreadPool& pool) const {
    GroupedSums p = sums_;
    p.source.data = pairs_ ? ConstView{arguments.first.data, DType::f32} : arguments.first;
    p.row_phase = row_phases_.data();
    p.column_phase = column_phases_.data();
    p.filter = arguments.second;
    p.packed = arguments.workspace;
    p.bias = arguments.bias;
    p.y = arguments.out;
    pool.for_each_block(blocks_, [&](std::int64_t block, int) { kernels_.pack(p, block); });
    const std::int64_t bands = ceil_div(p.rows, rows_of_item_), parts = ceil_div(blocks_, blocks_of_item_);
    pool.for_each_block(of_.images * bands * parts, [&](std::int64_t item, int worker) {
        const std::int64_t block = item % parts * blocks_of_item_, row = item / parts % bands * rows_of_item_;
        kernels_.sums(p, item / parts / bands, {row, std::min(p.rows, row + rows_of_item_)},
                      {block, std::min(blocks_, block + blocks_of_item_)},
                      arguments.workspace + shared_floats_ + worker * scratch_floats_);
    });
}

void GroupedConvolution::run_filter_gradient(const GroupedArguments& arguments, ThreadPool& pool) const {
    GroupedFilterGradient p = gradient_;
    p.source.data = arguments.first;
    p.dy = arguments.second;
    p.sums = arguments.workspace;
    p.dfilter = arguments.out;
    const std::int64_t rows = of_.images * p.rows, parts = ceil_div(blocks_, blocks_of_item_);
    pool.for_each_block(p.parts * parts, [&](std::int64_t item, int worker) {
        const std::int64_t block = item % parts * blocks_of_item_, row = item / parts * rows_of_item_;
        kernels_.filter_gradient(p, item / parts, {row, std::min(rows, row + rows_of_item_)},
                                 {block, std::min(blocks_, block + blocks_of_item_)},
                                 arguments.workspace + shared_floats_ + worker * scratch_floats_);
    });
    pool.for_each_block(blocks_, [&](std::int64_t block, int) { kernels_.finish(p, block); });
}

const GroupedKernels& grouped_kernels(Isa isa) {
    return of_level(isa, grouped_kernels_generic, grouped_kernels_avx2, grouped_kernels_avx512,
                    grouped_kernels_avx512bf16)();
}

}  // namespace mantissa::on_cpu
