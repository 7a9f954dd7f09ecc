// Convolutions in groups of few channels, depthwise ones among them: their problems and the table of kernels
// of a level. Plain data without functions, since files compiled for one instruction set include it.
//
// A block is sixteen channels of the output. Where groups are one channel, kernels read the images as they
// lie. Elsewhere each of the channels that a group reads has a plane of the source in FP32. The plane's lanes
// hold the channels that the block's channels meet, with zeros beside the image. So every convolution is sums
// of vectors by vectors, of whatever type, groups, padding and stride. A unit that multiplies pairs of BF16
// gets planes of pairs: half as many of them, or as many for half of the pixels.
#pragma once

#include "mantissa/device/cpu/rows/kernel_table.h"
#include "mantissa/graph/convolution_axis.h"

namespace mantissa::inline v0::on_cpu {

/// Channels of a block.
inline constexpr std::int64_t block_lanes = 16;
/// Channels of the source that a block may read.
inline constexpr std::int64_t max_span = 512;
/// Columns that lie so far apart meet equal taps in the gradient of the input.
inline constexpr std::int64_t max_phases = 8;

/// Room for three addresses of each of so many rows, in whole lines.
constexpr std::int64_t floats_of_pointers(std::int64_t rows) { return (6 * rows + 15) / 16 * 16; }

/// Places of the output along one axis, every so many, that meet the same elements of the filter. Place i of
/// them meets by its tap q the source's place source_first + i source_step + q distance.
struct WindowPhase {
    std::int64_t count = 0;
    std::int64_t taps = 0;
    std::int64_t filter_first = 0, filter_step = 1;  ///< tap q is this element of the filter
    std::int64_t packed_first = 0;                   ///< place of tap 0 among the packed taps
    std::int64_t source_first = 0, source_step = 1, distance = 1;
};

/// The source that a block's lanes are loaded from.
enum class LaneSource : std::uint8_t {
    image,     ///< the image itself, whose channels are the block's
    planes,    ///< one for each channel of a group
    permuted,  ///< one plane, the block's channels as they lie, permuted for each channel of a group
    broadcast  ///< the same plane, where a group fills the block: one channel for all lanes
};

/// Images that a convolution reads, and the planes that are made of them.
struct SourcePlanes {
    ConstView data = {};  // [N, rows, columns, channels]
    std::int64_t rows = 0, columns = 0, channels = 0;
    /// Channels of a group, here and in the output. The output's channel o reads channels from o /
    /// group_outputs group_channels on.
    std::int64_t group_channels = 1, group_outputs = 1;
    std::int64_t margin = 0;          ///< zeros before a row
    std::int64_t padded_columns = 0;  ///< of a row with all zeros
    std::int64_t slots = 0;           ///< rows that are kept at a time
    std::int64_t blocks = 1;          ///< that have rows in the slots
    LaneSource lanes_from = LaneSource::planes;
    /// Rows that are fetched while as many are made planes; 0: while sums are made, which then take longer.
    std::int64_t rows_ahead = 0;
    /// A lane is a pair of BF16, channels of a pixel. Every count of channels here then counts pairs.
    bool channel_pairs = false;
    /// Where it is not 0, a lane is a pair of BF16: its own pixel and the pixel so many columns behind.
    std::int64_t pixels_apart = 0;

    std::int64_t row_floats() const { return padded_columns * block_lanes; }
    /// Channels from one block's first to the next's, where each is in one block alone.
    std::int64_t block_channels() const { return block_lanes * group_channels / group_outputs; }
    std::int64_t planes() const { return lanes_from == LaneSource::planes ? group_channels : 1; }
    std::int64_t floats() const {
        return lanes_from == LaneSource::image ? 0 : slots * blocks * planes() * row_floats();
    }
};

/// y = the sums of products over the windows of the source, and a bias.
struct GroupedSums {
    SourcePlanes source;
    std::int64_t rows = 0, columns = 0, channels = 0;  ///< of an image of y
    /// Row h of y is place h / row_phases of phase h % row_phases.
    const WindowPhase* row_phase = nullptr;
    const WindowPhase* column_phase = nullptr;
    std::int64_t row_phases = 1, column_phases = 1;
    std::int64_t filter_rows = 1, filter_columns = 1;
    ConstView filter = {};     // [R, S, C / groups, K]
    std::int64_t filters = 0;  ///< K
    /// For output o a plane of a tap is row `plane` and column o of the filter. In the gradient of the input
    /// it is row o % group_outputs and column o / group_outputs group_channels + plane.
    bool of_gradient = false;
    float* packed = nullptr;  // [blocks, filter_rows, group_channels, filter_columns by phases, 16]
    ConstView bias = {};      // [channels], or none
    View y = {};              // [N, rows, columns, channels]
};

/// The gradient of the filter: rows of the output are counted over all images.
struct GroupedFilterGradient {
    SourcePlanes source;
    std::int64_t rows = 0, columns = 0, channels = 0;  ///< of an image of dy
    ConvolutionAxis vertical, horizontal;
    ConstView dy = {};       // [N, rows, columns, channels]
    std::int64_t parts = 1;  ///< of all rows, which have sums of their own
    float* sums = nullptr;   // [parts, blocks, R, group_channels, S, 16]
    View dfilter = {};       // [R, S, group_channels, channels]
};

struct GroupedKernels {
    const char* name;
    bool pairs;  ///< whether lanes may be pairs of BF16
    void (*pack)(const GroupedSums&, std::int64_t block);
    /// Rows of one image.
    void (*sums)(const GroupedSums&, std::int64_t image, Range rows, Range blocks, float* scratch);
    void (*filter_gradient)(const GroupedFilterGradient&, std::int64_t part, Range rows, Range blocks,
                            float* scratch);
    /// Adds up the parts.
    void (*finish)(const GroupedFilterGradient&, std::int64_t block);
};

const GroupedKernels& grouped_kernels_generic();
const GroupedKernels& grouped_kernels_avx2();
const GroupedKernels& grouped_kernels_avx512();
const GroupedKernels& grouped_kernels_avx512bf16();

}  // namespace mantissa::on_cpu
