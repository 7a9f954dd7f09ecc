// Shared by the HTML pages of all reports: the frame with its style, escaped text, tables, bars, and curves
// over steps. A page is one file that fetches nothing, runs no script, and reads in light and in dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/report/report.h"

namespace mantissa::inline v0::html {

/// Text as it may stand between tags and inside of quotes of either kind.
std::string escaped(std::string_view text);

/// A whole page. `title` is text, `body` is HTML. A file that is still being rewritten is loaded again after
/// so many seconds; 0: never.
std::string page(std::string_view title, const std::string& body, int reload_seconds = 0);

using Row = Grid::Row;

/// Cells are text. Columns of numbers stand to the right.
std::string table(const Grid& grid);

/// The version of mantissa that wrote the page, and the command that was typed for it.
std::string footer(const std::string& command);

/// Colours are 0 ... 7, and begin anew after that.
std::string color_class(std::size_t color);

struct BarPart {
    double value = 0;
    std::size_t color = 0;
    std::string title = {};  ///< shown when one points at it
};

struct Bar {
    std::string label;
    std::vector<BarPart> parts;
    std::string text;  ///< behind the bar: its number with a unit
};

/// A line for each bar, to one scale: `whole` fills the width; 0: the longest does.
std::string bars(const std::vector<Bar>& bars, double whole = 0);

struct Named {
    std::string name;
    std::size_t color = 0;
};

/// The legend of colours.
std::string key(const std::vector<Named>& entries);

struct Curve {
    std::string name;
    std::vector<double> values;  ///< one a step; what is not finite is left out
    std::size_t color = 0;
    std::vector<double> steps = {};  ///< of each value, ascending; empty: counted from 0
};

/// How curves are drawn. A letter is 12 units high; the drawing is as wide as its place.
struct DrawingOptions {
    double width = 1000, height = 300;
    bool logarithmic = false;  ///< up the page; what is not positive is left out
};

/// Curves over steps, with their key. `vertical` says what they show.
std::string curves(const std::vector<Curve>& curves, const std::string& vertical,
                   const DrawingOptions& options = {});

/// The same for curves that may lie on one another: the first is the widest, so that all can be seen.
std::string nested_curves(const std::vector<Curve>& curves, const std::string& vertical);

}  // namespace mantissa::html
