#include "mantissa/device/cpu/contraction/window.h"

#include <algorithm>
#include <cstring>

namespace mantissa::inline v0::on_cpu {

namespace {

/// Columns that lie behind one another in memory: of one r, and of one s or, where neighbours in the window
/// are neighbours in the image, of several.
struct Run {
    std::int64_t r = 0, s = 0;
    std::int64_t element = 0;  ///< from channel 0 of s
    std::int64_t length = 0;
};

/// Rows and columns of a window, written run by run.
class Gathering {
  public:
    Gathering(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes)
        : window_(window),
          images_(images),
          bytes_(element_bytes),
          neighbours_(window.horizontal.step == 1 && window.horizontal.pitch == window.channels) {}

    void row(std::int64_t index, PanelRange columns, std::byte* to) const {
        const ImageWindow::Axis &down = window_.vertical, &across = window_.horizontal;
        const std::int64_t j = index % across.rows, i = index / across.rows % down.rows;
        const std::byte* const image =
            images_ + index / window_.rows_of_image() * window_.image_pitch * bytes_;
        for (std::int64_t at = columns.begin; at < columns.begin + columns.size;) {
            const Run run = run_at(at, columns.begin + columns.size - at);
            const std::int64_t pixel_row = down.pixel(i, run.r);
            if (pixel_row < 0 || pixel_row >= down.pixels)
                clear(to, run.length);
            else
                copy(image + pixel_row * down.pitch * bytes_, across.pixel(j, run.s), run, to);
            to += run.length * bytes_;
            at += run.length;
        }
    }

  private:
    Run run_at(std::int64_t column, std::int64_t most) const {
        const std::int64_t of_r = window_.horizontal.columns * window_.channels;
        Run run{.r = column / of_r};
        const std::int64_t in_r = column % of_r;
        run.s = in_r / window_.channels;
        run.element = in_r % window_.channels;
        run.length =
            std::min(most, (neighbours_ ? of_r - run.s * window_.channels : window_.channels) - run.element);
        return run;
    }

    void clear(std::byte* to, std::int64_t elements) const {
        std::memset(to, 0, static_cast<std::size_t>(elements * bytes_));
    }

    /// What of the run lies in the image, which begins at pixel 0 of `pixels`, and zeros around it.
    void copy(const std::byte* pixels, std::int64_t pixel, const Run& run, std::byte* to) const {
        const ImageWindow::Axis& across = window_.horizontal;
        const std::int64_t end = run.element + run.length;
        const std::int64_t first = std::clamp(-pixel * window_.channels, run.element, end);
        const std::int64_t behind =
            neighbours_ ? (across.pixels - pixel) * window_.channels : (pixel < across.pixels ? end : 0);
        const std::int64_t last = std::clamp(behind, first, end);
        if (!neighbours_ && pixel < 0) return clear(to, run.length);
        clear(to, first - run.element);
        std::memcpy(to + (first - run.element) * bytes_, pixels + (pixel * across.pitch + first) * bytes_,
                    static_cast<std::size_t>((last - first) * bytes_));
        clear(to + (last - run.element) * bytes_, end - last);
    }

    const ImageWindow& window_;
    const std::byte* images_;
    std::int64_t bytes_;
    bool neighbours_;
};

}  // namespace

std::int64_t elements_of(const ImageWindow& window, std::int64_t rows) {
    const std::int64_t images = rows / window.rows_of_image();
    return (images - 1) * window.image_pitch + (window.vertical.pixels - 1) * window.vertical.pitch +
           (window.horizontal.pixels - 1) * window.horizontal.pitch + window.channels;
}

void gather(const ImageWindow& window, const std::byte* images, std::int64_t element_bytes, PanelRange rows,
            PanelRange columns, std::byte* to, std::int64_t leading) {
    const Gathering gathering(window, images, element_bytes);
    for (std::int64_t row = 0; row < rows.size; ++row)
        gathering.row(rows.begin + row, columns, to + row * leading * element_bytes);
}

}  // namespace mantissa::on_cpu
