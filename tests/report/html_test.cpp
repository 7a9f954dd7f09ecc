// Pages: every tag is closed, text is escaped, and nothing is fetched; charts are to scale.
#include "mantissa/report/html.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/html_page.h"

namespace mantissa {
namespace {

TEST(Html, TextCannotBecomeMarkup) {
    EXPECT_EQ(html::escaped("<a href='x' b=\"y\">&amp;"),
              "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;amp;");
    const std::string page = html::page("<script>", html::table({{"<b>"}, {{"</td>"}}}));
    EXPECT_EQ(fault_of_page(page), "");
    EXPECT_NE(page.find("<title>&lt;script&gt;</title>"), std::string::npos);
    EXPECT_NE(page.find("<th>&lt;b&gt;</th>"), std::string::npos);
    EXPECT_NE(page.find("<td>&lt;/td&gt;</td>"), std::string::npos);
}

TEST(Html, TheCheckOfPagesFindsWhatIsWrong) {
    EXPECT_EQ(fault_of_page(html::page("x", "<p>open")), "</body> closes <p>");
    EXPECT_EQ(fault_of_page(html::page("x", "</p>")), "</p> closes <body>");
    EXPECT_EQ(fault_of_page(html::page("x", "<img src='a.png'>")), "it fetches: src=");
    EXPECT_EQ(fault_of_page(html::page("x", "<script></script>")), "it runs a script");
    EXPECT_EQ(fault_of_page(html::page("x", "1 < 2")), "a bare < at ' 2</bo'");
}

TEST(Html, NumbersStandToTheRight) {
    const std::string table = html::table({{"name", "ms"}, {{"b1", "12.5"}, {"2", "-"}}});
    EXPECT_NE(table.find("<th>name</th><th class='n'>ms</th>"), std::string::npos) << table;
    EXPECT_NE(table.find("<td>b1</td><td class='n'>12.5</td>"), std::string::npos) << table;
    EXPECT_NE(table.find("<td>2</td><td class='n'>-</td>"), std::string::npos) << table;
}

TEST(HtmlCharts, BarsAreToOneScale) {
    const std::vector<html::Bar> two = {{"a<b", {{30, 0, ""}, {10, 1, ""}}, "40 ms"},
                                        {"c", {{20, 0, ""}}, "20 ms"}};
    const std::string longest = html::bars(two), given = html::bars(two, 80);
    EXPECT_EQ(fault_of_page(html::page("bars", longest)), "");
    for (const char* part : {"a&lt;b", "width:75.000%", "width:25.000%", "width:50.000%", "40 ms"})
        EXPECT_NE(longest.find(part), std::string::npos) << part << " is missing in " << longest;
    EXPECT_NE(given.find("width:37.500%"), std::string::npos) << given;
    EXPECT_EQ(html::bars({{"none", {{0, 0, ""}}, "0"}}).find("nan"), std::string::npos);
}

TEST(HtmlCharts, CurvesLeaveOutWhatIsNotFinite) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::string svg = html::curves({{"a'b", {1, nan, 3}, 0}, {"flat", {2, 2, 2}, 1}}, "loss");
    EXPECT_EQ(fault_of_page(html::page("curves", svg)), "");
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
    EXPECT_NE(svg.find("a&#39;b, step 2: 3"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("a&#39;b, step 1"), std::string::npos) << svg;
    for (const std::vector<double>& few : {std::vector<double>{}, {nan}, {0}, {7, 7}}) {
        const std::string empty = html::nested_curves({{"x", few, 9}}, "loss");
        EXPECT_EQ(fault_of_page(html::page("curves", empty)), "");
        EXPECT_EQ(empty.find("nan"), std::string::npos) << empty;
        EXPECT_EQ(empty.find("inf"), std::string::npos) << empty;
    }
}

/// Attributes of circles, in the order of the drawing.
std::vector<double> of_circles(const std::string& svg, const std::string& attribute) {
    std::vector<double> values;
    for (std::size_t at = 0; (at = svg.find(" " + attribute + "='", at)) != std::string::npos; ++at)
        values.push_back(std::stod(svg.substr(at + attribute.size() + 3)));
    return values;
}

TEST(HtmlCharts, AConstantHasOneLineAndEveryLabelHasRoom) {
    for (const double value : {0.001, 0.0, -3e-7, 123456.0}) {
        const html::Curve curve{"rate", {value, value, value}};
        const std::string svg = html::curves({curve}, "rate", {.width = 480, .height = 240});
        std::size_t lines = 0;
        for (std::size_t at = 0; (at = svg.find("class='axis'", at)) != std::string::npos; ++at) ++lines;
        EXPECT_EQ(lines, 1u) << svg;
        EXPECT_NE(svg.find(fmt::format(">{:.6g}</text>", value)), std::string::npos) << svg;
    }
    // The place of a letter 6 units wide, and of a label that ends at x.
    const html::Curve narrow{"loss", {0.00123451, 0.00123459}};
    const std::string svg = html::curves({narrow}, "loss", {.width = 480, .height = 240});
    for (std::size_t at = 0; (at = svg.find("<text x='", at)) != std::string::npos; ++at) {
        const double x = std::stod(svg.substr(at + 9));
        const std::size_t begin = svg.find('>', at) + 1, end = svg.find('<', begin);
        if (svg.substr(at, begin - at).find("text-anchor='end'") == std::string::npos) continue;
        EXPECT_GE(x - 6.0 * static_cast<double>(end - begin), 0) << svg.substr(at, end - at);
    }
}

TEST(HtmlCharts, PointsLieAtTheirStepsAndOnALogarithmicAxisAtTheirPowers) {
    const html::Curve curve{"a", {1, 10, 1000, 0, 100}, 0, {20, 30, 50, 55, 60}};
    const std::string svg = html::curves({curve}, "what", {.width = 480, .height = 240, .logarithmic = true});
    EXPECT_EQ(fault_of_page("<!doctype html>\n" + svg), "");
    EXPECT_NE(svg.find("viewBox='0 0 480 240'"), std::string::npos);
    EXPECT_NE(svg.find("a, step 50: 1000<"), std::string::npos);
    EXPECT_EQ(svg.find("step 55"), std::string::npos);  // 0 has no logarithm
    const std::vector<double> x = of_circles(svg, "cx"), y = of_circles(svg, "cy");
    ASSERT_EQ(x.size(), 4u);
    EXPECT_NEAR(x[2] - x[1], 2 * (x[1] - x[0]), 0.3);
    EXPECT_NEAR(y[1] - y[2], 2 * (y[0] - y[1]), 0.3);
    for (const char* mark : {">1</text>", ">10</text>", ">100</text>", ">1000</text>"})
        EXPECT_NE(svg.find(mark), std::string::npos) << mark;
}

}  // namespace
}  // namespace mantissa
