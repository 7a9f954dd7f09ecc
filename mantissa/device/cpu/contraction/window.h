// Gathering an operand from images, some rows and columns at a time, on its way into panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Elements of the images of `rows` rows, from the first row's first to behind the last row's last.
std::int64_t elements_of(const ImageWindow& window, std::int64_t rows);

/// The destination of rows and columns: columns in blocks, one behind another, each with its rows `leading`
/// apart. Counts are in elements.
struct GatheredTo {
    std::byte* data = nullptr;
    std::int64_t leading = 0;
    std::int64_t block_columns = 0;
    std::int64_t block_elements = 0;  ///< from one block to the next
};

/// Images in memory: the address of the first, and the copying of its elements.
struct ImagesInMemory {
    const std::byte* data = nullptr;
    std::int64_t element_bytes = 0;
    GatherKernel kernel = nullptr;  ///< null: plain loops
};

/// Writes these rows and columns of the window's matrix.
void gather(const ImageWindow& window, const ImagesInMemory& images, PanelRange rows, PanelRange columns,
            const GatheredTo& to);

/// Rows whose places are known at a time.
constexpr std::int64_t max_corners = 64;

/// The first pixels of the windows of some rows, perhaps outside of the image, and their elements.
struct Corners {
    alignas(64) std::int32_t row[max_corners];
    alignas(64) std::int32_t column[max_corners];
    std::int64_t element[max_corners];
};

/// Columns that lie behind one another in memory for each of some rows: at most a cache line of one row of
/// the window, or `count` such lines, one after another, of one of its pixels.
struct WindowPiece {
    const Corners* corners = nullptr;
    std::int64_t rows = 0;
    std::int64_t down = 0, across = 0;   ///< from a corner to its first pixel
    std::int64_t element = 0;            ///< the first of that pixel
    const std::byte* images = nullptr;   ///< its address if the corner's element is 0
    std::int64_t element_bytes = 0;      ///< 2 or 4
    std::int64_t length = 0, count = 1;  ///< length: in elements
    std::int64_t image_rows = 0, row_elements = 0, channels = 0;
    std::byte* to = nullptr;
    std::int64_t next_row = 0, next_piece = 0;  ///< distances in the destination, in bytes
};

}  // namespace mantissa::on_cpu
