// Drawings for the pages of html.h: bars, and curves over steps.
#pragma once

#include <string>
#include <vector>

namespace mantissa::inline v0::html {

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
