#include "mantissa/device/cpu/contraction/window.h"

#include <algorithm>
#include <cstring>

namespace mantissa::inline v0::on_cpu {

namespace {

/// Finds the corners of `count` rows from `first` on.
void find_corners(const ImageWindow& window, std::int64_t first, std::int64_t count, Corners& corners) {
    const ConvolutionAxis &down = window.vertical, &across = window.horizontal;
    std::int64_t j = first % across.output, i = first / across.output % down.output;
    std::int64_t image = first / window.rows_of_image() * window.image_pitch;
    const std::int64_t step = across.stride * window.pixel_pitch;
    for (std::int64_t row = 0; row < count; j = 0) {
        const std::int64_t h = down.image_place(i, 0);
        std::int64_t w = across.image_place(j, 0);
        std::int64_t element = image + h * window.row_pitch + w * window.pixel_pitch;
        for (; j < across.output && row < count; ++j, ++row, w += across.stride, element += step) {
            corners.row[row] = static_cast<std::int32_t>(h);
            corners.column[row] = static_cast<std::int32_t>(w);
            corners.element[row] = element;
        }
        if (++i < down.output) continue;
        i = 0;
        image += window.image_pitch;
    }
}

/// A column of the window.
struct Place {
    std::int64_t r = 0, s = 0, channel = 0;
};

/// Columns that lie behind one another in memory: of one r, and of one s or, where neighbours in the window
/// are neighbours in the image, of several s.
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
    Gathering(const ImageWindow& window, const ImagesInMemory& images)
        : window_(window),
          images_(images),
          bytes_(images.element_bytes),
          neighbours_(window.horizontal.dilation == 1 && window.pixel_pitch == window.channels) {}

    /// Writes `columns` of `rows`, whose corners are there, from row `row` of the destination on.
    void write(const Corners& corners, std::int64_t row, std::int64_t rows, PanelRange columns,
               const GatheredTo& to) const {
        Place place = place_of(columns.begin);
        for (std::int64_t column = 0; column < columns.size;) {
            const std::int64_t block = column / to.block_columns, in_block = column % to.block_columns;
            const std::int64_t first = block * to.block_elements + row * to.leading + in_block;
            std::byte* const there = to.data + first * bytes_;
            const std::int64_t left = columns.size - column, left_of_block = to.block_columns - in_block;
            std::int64_t written = 0;
            if (images_.kernel) {
                written = copy(run_at(place, left), corners, rows, left_of_block, to, there);
            } else {
                const Run run = run_at(place, std::min(left, left_of_block));
                write_run(run, corners, rows, there, to.leading);
                written = run.length;
            }
            column += written;
            advance(place, written);
        }
    }

  private:
    Place place_of(std::int64_t column) const {
        const std::int64_t pixel = column / window_.channels;
        return {pixel / window_.horizontal.filter, pixel % window_.horizontal.filter,
                column % window_.channels};
    }

    /// By columns of one run.
    void advance(Place& place, std::int64_t columns) const {
        place.channel += columns;
        for (; place.channel >= window_.channels; place.channel -= window_.channels) ++place.s;
        if (place.s < window_.horizontal.filter) return;
        place.s = 0;
        ++place.r;
    }

    /// The run at a place, of at most `most` columns.
    Run run_at(const Place& place, std::int64_t most) const {
        const std::int64_t pixels = neighbours_ ? window_.horizontal.filter - place.s : 1;
        return {.down = place.r * window_.vertical.dilation,
                .across = place.s * window_.horizontal.dilation,
                .element = place.channel,
                .length = std::min(most, pixels * window_.channels - place.channel)};
    }

    std::int64_t from_corner(const Run& run) const {
        return run.down * window_.row_pitch + run.across * window_.pixel_pitch + run.element;
    }

    /// Copies the beginning of a run for each row, by the kernel; gives its number of columns. So many
    /// columns are left in a block of the destination.
    std::int64_t copy(const Run& run, const Corners& corners, std::int64_t rows, std::int64_t left_of_block,
                      const GatheredTo& to, std::byte* there) const {
        const std::int64_t line = 64 / bytes_;
        WindowPiece piece{.corners = &corners,
                          .rows = rows,
                          .down = run.down,
                          .across = run.across,
                          .element = run.element,
                          .images = images_.data + from_corner(run) * bytes_,
                          .element_bytes = bytes_,
                          .length = std::min({run.length, left_of_block, line}),
                          .image_rows = window_.vertical.image,
                          .row_elements = window_.horizontal.image * window_.channels,
                          .channels = window_.channels,
                          .to = there,
                          .next_row = to.leading * bytes_,
                          .next_piece = 64};
        const bool are_blocks = to.block_columns == line;
        if (are_blocks) piece.next_piece = to.block_elements * bytes_;
        if (piece.length == line) {
            const std::int64_t of_pixel = std::min(run.length, window_.channels - run.element);
            const std::int64_t most = are_blocks ? of_pixel : std::min(of_pixel, left_of_block);
            piece.count = std::max<std::int64_t>(1, most / line);
        }
        images_.kernel(piece);
        return piece.length * piece.count;
    }

    /// The run of each row, rows `leading` elements apart.
    void write_run(const Run& run, const Corners& corners, std::int64_t rows, std::byte* to,
                   std::int64_t leading) const {
        const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
        const std::int64_t last_pixel = neighbours_ ? (run.element + run.length - 1) / window_.channels : 0;
        for (std::int64_t row = 0; row < rows; ++row, to += leading * bytes_) {
            const std::int64_t pixel_row = corners.row[row] + run.down;
            const std::int64_t pixel = corners.column[row] + run.across;
            const std::int64_t element = corners.element[row] + from_corner(run);
            if (pixel_row < 0 || pixel_row >= down.image)
                clear(to, run.length * bytes_);
            else if (pixel >= 0 && pixel + last_pixel < across.image)
                copy_bytes(to, images_.data + element * bytes_, run.length * bytes_);
            else
                write_beside_edge(run, pixel, element, to);
        }
    }

    /// Writes pixels that lie partly outside of the image, or wholly where one run is one pixel.
    void write_beside_edge(const Run& run, std::int64_t pixel, std::int64_t element, std::byte* to) const {
        const std::int64_t end = run.element + run.length, pixels = window_.horizontal.image;
        std::int64_t first = end, last = end;
        if (neighbours_) {
            first = std::clamp(-pixel * window_.channels, run.element, end);
            last = std::clamp((pixels - pixel) * window_.channels, first, end);
        }
        clear(to, (first - run.element) * bytes_);
        copy_bytes(to + (first - run.element) * bytes_,
                   images_.data + (element + first - run.element) * bytes_, (last - first) * bytes_);
        clear(to + (last - run.element) * bytes_, (end - last) * bytes_);
    }

    const ImageWindow& window_;
    const ImagesInMemory& images_;
    std::int64_t bytes_;
    bool neighbours_;
};

}  // namespace

std::int64_t elements_of(const ImageWindow& window, std::int64_t rows) {
    const std::int64_t images = rows / window.rows_of_image();
    return (images - 1) * window.image_pitch + (window.vertical.image - 1) * window.row_pitch +
           (window.horizontal.image - 1) * window.pixel_pitch + window.channels;
}

void gather(const ImageWindow& window, const ImagesInMemory& images, PanelRange rows, PanelRange columns,
            const GatheredTo& to) {
    const Gathering gathering(window, images);
    Corners corners;
    for (std::int64_t row = 0; row < rows.size; row += max_corners) {
        const std::int64_t count = std::min(max_corners, rows.size - row);
        find_corners(window, rows.begin + row, count, corners);
        gathering.write(corners, row, count, columns, to);
    }
}

}  // namespace mantissa::on_cpu
