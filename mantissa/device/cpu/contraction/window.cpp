#include "mantissa/device/cpu/contraction/window.h"

#include <algorithm>
#include <cstring>

namespace mantissa::inline v0::on_cpu {

namespace {

/// Rows whose places are known at a time.
constexpr std::int64_t most_corners = 64;

/// Where the window of a row begins: a pixel, perhaps outside of the image, and its element.
struct Corner {
    std::int64_t row, column, element;
};

/// Those of `count` rows from `first` on.
void find_corners(const ImageWindow& window, std::int64_t first, std::int64_t count, Corner* corners) {
    const ConvolutionAxis &down = window.vertical, &across = window.horizontal;
    std::int64_t j = first % across.output, i = first / across.output % down.output;
    std::int64_t image = first / window.rows_of_image() * window.image_pitch;
    for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t h = down.image_place(i, 0), w = across.image_place(j, 0);
        corners[row] = {h, w, image + h * window.row_pitch + w * window.pixel_pitch};
        if (++j < across.output) continue;
        j = 0;
        if (++i < down.output) continue;
        i = 0;
        image += window.image_pitch;
    }
}

/// Columns that lie behind one another in memory: of one r, and of one s or, where neighbours in the window
/// are neighbours in the image, of several.
struct Run {
    std::int64_t down = 0, across = 0;  ///< from the corner to its first pixel
    std::int64_t element = 0;           ///< from that pixel's first channel
    std::int64_t length = 0;
};

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
    std::int64_t at = 0;
    for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, from + at, 64);
    for (; at + 8 <= bytes; at += 8) std::memcpy(to + at, from + at, 8);
    for (; at < bytes; ++at) to[at] = from[at];
}

void clear(std::byte* to, std::int64_t bytes) { std::memset(to, 0, static_cast<std::size_t>(bytes)); }

/// Rows and columns of a window, written run by run.
class Gathering {
  public:
    Gathering(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes)
        : window_(window),
          images_(images),
          bytes_(element_bytes),
          neighbours_(window.horizontal.dilation == 1 && window.pixel_pitch == window.channels) {}

    /// At most so many columns from `column` on that are one run.
    Run run_at(std::int64_t column, std::int64_t most) const {
        const std::int64_t of_r = window_.horizontal.filter * window_.channels, in_r = column % of_r;
        const std::int64_t s = in_r / window_.channels, element = in_r % window_.channels;
        const std::int64_t all = neighbours_ ? of_r - s * window_.channels : window_.channels;
        return {.down = column / of_r * window_.vertical.dilation,
                .across = s * window_.horizontal.dilation,
                .element = element,
                .length = std::min(most, all - element)};
    }

    /// The run of each row, rows `leading` elements apart.
    void write(const Run& run, const Corner* corners, std::int64_t rows, std::byte* to,
               std::int64_t leading) const {
        const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
        const std::int64_t from_corner =
            run.down * window_.row_pitch + run.across * window_.pixel_pitch + run.element;
        const std::int64_t last_pixel = neighbours_ ? (run.element + run.length - 1) / window_.channels : 0;
        if (last_pixel == 0 && run.length * bytes_ == line_bytes)
            return write_lines(run, corners, rows, images_ + from_corner * bytes_, to, leading * bytes_);
        for (std::int64_t row = 0; row < rows; ++row, to += leading * bytes_) {
            const std::int64_t pixel_row = corners[row].row + run.down;
            const std::int64_t pixel = corners[row].column + run.across;
            if (pixel_row < 0 || pixel_row >= down.image)
                clear(to, run.length * bytes_);
            else if (pixel >= 0 && pixel + last_pixel < across.image)
                copy_bytes(to, images_ + (corners[row].element + from_corner) * bytes_, run.length * bytes_);
            else
                write_beside_edge(run, pixel, corners[row].element + from_corner, to);
        }
    }

  private:
    /// Runs of one pixel that are as long as a cache line, as blocks of a tile's depth are in BF16.
    static constexpr std::int64_t line_bytes = 64;
    void write_lines(const Run& run, const Corner* corners, std::int64_t rows, const std::byte* from,
                     std::byte* to, std::int64_t step) const {
        // Negative ones are too large, too.
        const auto pixel_rows = static_cast<std::uint64_t>(window_.vertical.image);
        const auto pixels = static_cast<std::uint64_t>(window_.horizontal.image);
        for (std::int64_t row = 0; row < rows; ++row, to += step)
            if (static_cast<std::uint64_t>(corners[row].row + run.down) < pixel_rows &&
                static_cast<std::uint64_t>(corners[row].column + run.across) < pixels)
                std::memcpy(to, from + corners[row].element * bytes_, line_bytes);
            else
                std::memset(to, 0, line_bytes);
    }

    /// Writes pixels of which some lie outside of the image, and all do where one run is one pixel.
    void write_beside_edge(const Run& run, std::int64_t pixel, std::int64_t element, std::byte* to) const {
        const std::int64_t end = run.element + run.length, pixels = window_.horizontal.image;
        std::int64_t first = end, last = end;
        if (neighbours_) {
            first = std::clamp(-pixel * window_.channels, run.element, end);
            last = std::clamp((pixels - pixel) * window_.channels, first, end);
        }
        clear(to, (first - run.element) * bytes_);
        copy_bytes(to + (first - run.element) * bytes_, images_ + (element + first - run.element) * bytes_,
                   (last - first) * bytes_);
        clear(to + (last - run.element) * bytes_, (end - last) * bytes_);
    }

    const ImageWindow& window_;
    const std::byte* images_;
    std::int64_t bytes_;
    bool neighbours_;
};

}  // namespace

std::int64_t elements_of(const ImageWindow& window, std::int64_t rows) {
    const std::int64_t images = rows / window.rows_of_image();
    return (images - 1) * window.image_pitch + (window.vertical.image - 1) * window.row_pitch +
           (window.horizontal.image - 1) * window.pixel_pitch + window.channels;
}

void gather(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes, PanelRange rows,
            PanelRange columns, const GatheredTo& to) {
    const Gathering gathering(window, images, element_bytes);
    Corner corners[most_corners];
    for (std::int64_t row = 0; row < rows.size; row += most_corners) {
        const std::int64_t count = std::min(most_corners, rows.size - row);
        find_corners(window, rows.begin + row, count, corners);
        for (std::int64_t column = 0; column < columns.size;) {
            const std::int64_t block = column / to.block_columns, in_block = column % to.block_columns;
            const Run run = gathering.run_at(columns.begin + column,
                                             std::min(columns.size - column, to.block_columns - in_block));
            const std::int64_t first = block * to.block_elements + row * to.leading + in_block;
            gathering.write(run, corners, count, to.data + first * element_bytes, to.leading);
            column += run.length;
        }
    }
}

}  // namespace mantissa::on_cpu
