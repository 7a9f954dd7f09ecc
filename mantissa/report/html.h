// Shared by the HTML pages of all reports: the frame with its style, escaped text and tables. A page is one
// file that fetches nothing, runs no script, and reads in light and in dark.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace mantissa::html
