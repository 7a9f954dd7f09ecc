// Reports as data: text that is aligned, what is unknown, and the members of JSON.
#include "mantissa/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/version.h"
#include "mantissa/report/quantities.h"

namespace mantissa {
namespace {

TEST(Grid, NumbersStandToTheRightAndWordsToTheLeft) {
    const Grid grid{{"name", "ms", "share", "why"},
                    {{"b1", "12.5", "-", "2 * f(s) + 1"}, {"größe", "+7", "", ""}}};
    EXPECT_EQ(grid.text(),
              "name     ms  share  why\n"
              "b1     12.5      -  2 * f(s) + 1\n"
              "größe    +7\n");
    EXPECT_EQ((Grid{{"a", "b"}}.text()), "a  b\n");
}

TEST(Table, ShowsColumnsThatHaveAHeadingAndOfWhichAnythingIsKnown) {
    Table table{{{"name", "rung"},
                 "hidden",
                 {"share", "MFU", percent},
                 {"", "on the page", nullptr, Column::In::page},
                 {"", "in text", nullptr, Column::In::text},
                 {"unknown", "unknown", times},
                 {"some", "some", times}}};
    table.add("fp32", 1, 0.25, 7, true, Datum(), nullptr);
    table.add(std::string("bf16"), 2, 1, 8, false, nullptr, 2.0);
    EXPECT_EQ(table.text(),
              "rung      MFU  in text   some\n"
              "fp32   25.0 %  true         -\n"
              "bf16  100.0 %  false    2.00x\n");
    EXPECT_EQ(table.on_page().headings, (Grid::Row{"rung", "MFU", "on the page", "some"}));
    const auto json = nlohmann::json::parse(json_of("x", {{"rows", table}}))["rows"];
    EXPECT_EQ(json[0],
              nlohmann::json::parse(R"({"name": "fp32", "hidden": 1, "share": 0.25, "some": null})"));
    EXPECT_EQ(json[1], nlohmann::json::parse(
                           R"({"name": "bf16", "hidden": 2, "share": 1, "unknown": null, "some": 2.0})"));
    table.add("too few");
    EXPECT_THROW(table.text(), InternalError);
}

TEST(Json, HasEachKindOfValueAndObjectsWithinObjects) {
    const double infinite = std::numeric_limits<double>::infinity();
    const std::string text = json_of("test", {{"machine", Fields{{"isa", "avx2"}, {"peaks.copy", 2.5}}},
                                              {"machine.threads", 3},
                                              {"seed", std::numeric_limits<std::uint64_t>::max()},
                                              {"numbers", std::vector<double>{1, infinite, std::nan("")}},
                                              {"pairs", Datum::List{Datum::List{-1, "a"}}},
                                              {"no", std::optional<double>()},
                                              {"yes", std::optional<double>(0.5)},
                                              {"why", or_null("")},
                                              {"absent", Datum()},
                                              {"none", Table{{"a"}}}});
    EXPECT_EQ(text.back(), '\n');
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json, nlohmann::json::parse(R"({"command": "test", "version": ")" + std::string(version()) +
                                          R"(", "commit": ")" + commit() + R"(",
        "machine": {"isa": "avx2", "peaks": {"copy": 2.5}, "threads": 3}, "seed": 18446744073709551615,
        "numbers": [1, null, null], "pairs": [[-1, "a"]], "no": null, "yes": 0.5, "why": null, "none": []})"));
    EXPECT_LT(text.find("\"command\""), text.find("\"machine\"")) << "in the order in which they are given";
}

TEST(Quantities, MillisecondsBelowOneKeepThreeDigits) {
    EXPECT_EQ(milliseconds_text(12.34), "12.3");
    EXPECT_EQ(milliseconds_text(0.0944), "0.0944");
}

}  // namespace
}  // namespace mantissa
