// Shared by the HTML pages of all reports: the frame with its style, escaped text, tables, bars, and curves
// over steps. A page is one file that fetches nothing, runs no script, and suits light and dark displays.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/report/report.h"

namespace mantissa::inline v0::html {

/// Text escaped for use between tags and inside quotes of either kind.
std::string escaped(std::string_view text);

/// A whole page. `title` is text, `body` is HTML. `reload_seconds`: the page reloads while its file is being
/// rewritten; 0: never.
std::string page(std::string_view title, const std::string& body, int reload_seconds = 0);

using Row = Grid::Row;

/// A table with cells of text; columns of numbers are right-aligned.
std::string table(const Grid& grid);

/// The version of mantissa that wrote the page, and its command line.
std::string footer(const std::string& command);

/// Colours 0 ... 7, repeated beyond.
std::string color_class(std::size_t color);

struct BarPart {
    double value = 0;
    std::size_t color = 0;
    std::string title = {};  ///< shown under the pointer
};

struct Bar {
    std::string label;
    std::vector<BarPart> parts;
    std::string text;  ///< after the bar: its number with a unit
};

/// A line per bar, on one scale: `whole` fills the width; 0: the longest does.
std::string bars(const std::vector<Bar>& bars, double whole = 0);

struct Named {
    std::string name;
    std::size_t color = 0;
};

/// The legend of colours.
std::string key(const std::vector<Named>& entries);

struct Curve {
    std::string name;
    std::vector<double> values;  ///< one a step; values that are not finite are left out
    std::size_t color = 0;
    std::vector<double> steps = {};  ///< step of each value, ascending; empty: from 0
};

/// Drawing of curves. A letter is 12 units high; the drawing fills its place's width.
struct DrawingOptions {
    double width = 1000, height = 300;
    bool logarithmic = false;  ///< vertical axis; values below or at 0 are left out
};

/// Curves over steps, with their legend. `vertical` names the values.
std::string curves(const std::vector<Curve>& curves, const std::string& vertical,
                   const DrawingOptions& options = {});

/// Curves that may coincide: the first is the widest, so that all remain visible.
std::string nested_curves(const std::vector<Curve>& curves, const std::string& vertical);

}  // namespace mantissa::html
