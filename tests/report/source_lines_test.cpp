// Steps by the lines that traced them.
#include "mantissa/report/source_lines.h"

#include <gtest/gtest.h>

#include "mantissa/graph/graph.h"

namespace mantissa {
namespace {

TEST(SourceLines, OfAnExplanationAddUpByLineAndEndInWhatHasNone) {
    Explanation explanation;
    const auto add = [&](const char* line, const char* name, const char* multiply, std::int64_t flops) {
        ExplainedNode& node = explanation.nodes.emplace_back();
        node.name = name;
        node.line = line;
        node.multiply = multiply;
        node.bytes = 2'000'000;
        node.flops = flops;
    };
    add("", "", "f32", 1);
    add("model.py:52", "h.0.attn", "bf16", 3'000'000'000);
    add("model.py:9", "head", "f32", 1'000'000'000);
    add("model.py:52", "h.1.attn", "bf16", 3'000'000'000);
    add("model.py:52", "h.0.attn", "f32", 0);
    const Grid grid = lines_of(explanation);
    ASSERT_EQ(grid.rows.size(), 3u);
    EXPECT_EQ(grid.rows[0],
              (Grid::Row{"model.py:52", "h.0.attn and 1 more", "3", "6.000", "6.00", "bf16 f32"}));
    EXPECT_EQ(grid.rows[1], (Grid::Row{"model.py:9", "head", "1", "1.000", "2.00", "f32"}));
    EXPECT_EQ(grid.rows[2], (Grid::Row{"-", "-", "1", "0.000", "2.00", "f32"}));
}

TEST(SourceLines, OfARooflineBeginWithTheSlowest) {
    Roofline roofline;
    roofline.wall_seconds = 0.01;
    const auto add = [&](const char* line, const char* name, double seconds) {
        roofline.entries.push_back({.op = "matmul",
                                    .name = name,
                                    .line = line,
                                    .pass = "forward",
                                    .kernel = "",
                                    .seconds = seconds,
                                    .cost = {.flops = 1'000'000, .bytes = 2'000'000}});
    };
    add("a.py:1", "a", 0.001);
    add("a.py:2", "b", 0.002);
    add("a.py:1", "c", 0.003);
    const Grid grid = source_lines_of(roofline);
    ASSERT_EQ(grid.rows.size(), 2u);
    EXPECT_EQ(grid.rows[0], (Grid::Row{"a.py:1", "a and 1 more", "2", "4.00", "40.0 %", "0.5", "1.0"}));
    EXPECT_EQ(grid.rows[1], (Grid::Row{"a.py:2", "b", "1", "2.00", "20.0 %", "0.5", "1.0"}));
}

TEST(SourceLines, OfALadderHaveAColumnForEachRung) {
    LadderReport ladder;
    const auto add = [&](const char* line, const char* name, double seconds) {
        ladder.rungs.back().roofline.entries.push_back({.op = "matmul",
                                                        .name = name,
                                                        .line = line,
                                                        .pass = "forward",
                                                        .kernel = "",
                                                        .seconds = seconds});
    };
    ladder.rungs.push_back({.name = "fp32"});
    add("a.py:1", "a", 0.001);
    add("a.py:2", "b", 0.002);
    add("a.py:2", "c", 0.003);
    ladder.rungs.push_back({.name = "compiled"});
    add("a.py:2", "b", 0.004);
    add("a.py:3", "d", 0.009);
    const Grid grid = source_lines_of(ladder);
    EXPECT_EQ(grid.headings, (Grid::Row{"line", "where", "fp32", "compiled"}));
    ASSERT_EQ(grid.rows.size(), 3u);
    EXPECT_EQ(grid.rows[0], (Grid::Row{"a.py:2", "b and 1 more", "5.00", "4.00"}));
    EXPECT_EQ(grid.rows[1], (Grid::Row{"a.py:1", "a", "1.00", "-"}));
    EXPECT_EQ(grid.rows[2], (Grid::Row{"a.py:3", "d", "-", "9.00"}));
}

}  // namespace
}  // namespace mantissa
