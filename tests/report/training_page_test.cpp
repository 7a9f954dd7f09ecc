#include "mantissa/report/training_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/html_page.h"

namespace mantissa {
namespace {

bool has(const std::string& page, const std::string& part) { return page.find(part) != std::string::npos; }

std::size_t count(const std::string& page, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = page.find(part, at)) != std::string::npos; at += part.size()) ++found;
    return found;
}

TrainingRun run_of(std::int64_t steps) {
    TrainingRun run;
    run.model = "tiny <&>";
    run.command = "mantissa train --html 'a b.html'";
    run.steps = steps;
    run.facts = {{"text", "a.txt <x>"}, {"seed", "7"}};
    return run;
}

TrainingPoint point_of(std::int64_t step, double loss) {
    TrainingPoint point;
    point.step = step;
    point.loss = loss;
    point.learning_rate = 1e-3;
    point.gradient_norm = 2;
    point.units_per_second = 12345;
    point.mfu = 0.25;
    return point;
}

TEST(TrainingPage, ShowsTheAccuracyOfANetworkForImages) {
    TrainingRun run = run_of(3);
    run.unit = "images";
    TrainingPage page(run);
    EXPECT_FALSE(has(page.html(TrainingState::runs, "now", 1), "accuracy"));
    for (int step = 0; step < 3; ++step) {
        page.add(point_of(step, 1));
        page.add_validation(0.5);
        page.add_accuracy(step == 1 ? 0.75 : 0.5, 1);
    }
    const std::string html = page.html(TrainingState::ended, "now", 3);
    EXPECT_EQ(fault_of_page(html), "");
    for (const char* part : {"validation accuracy <b>50.0 %</b>", "most <b>75.0 %</b>",
                             "top 1, step 1: 0.75<", "top 5, step 2: 1<", "images a second, step 2: 12345<"})
        EXPECT_TRUE(has(html, part)) << part;
}

TEST(TrainingPage, ASampleKeepsItsLinesAndShowsControlCharacters) {
    TrainingPage page(run_of(1));
    page.add(point_of(0, 5));
    page.add_sample("# one\n\n- two\x13\x1b[2J");
    const std::string html = page.html(TrainingState::ended, "now", 3);
    EXPECT_EQ(fault_of_page(html), "");
    EXPECT_TRUE(has(html, "<code class=\"sample\"># one\n\n- two\\x13\\x1b[2J</code>"));
    EXPECT_TRUE(has(html, ".sample{white-space:pre-wrap}"));
}

TEST(TrainingPage, HoldsEveryPointOfAShortRun) {
    TrainingPage page(run_of(20));
    for (int step = 0; step < 20; ++step) {
        page.add(point_of(step, 5 - 0.125 * step));
        if (step == 9) page.add_validation(4.5);
        if (step == 19) page.add_validation(4.75);
    }
    page.add_sample("to be <or> not");
    const std::string html = page.html(TrainingState::ended, "2026-01-02 03:04:05 UTC", 3723);
    EXPECT_EQ(fault_of_page(html), "");
    for (int step = 0; step < 20; ++step)  // once on broad pages, once on narrow ones, and in its half
        EXPECT_EQ(count(html, "<title>loss, step " + std::to_string(step) + ": "), step < 10 ? 2u : 3u)
            << step;
    for (const char* part :
         {"Training tiny &lt;&amp;&gt;", "20 of 20 steps are done, 1 h 2 min in all; the run has ended",
          "Written 2026-01-02 03:04:05 UTC", "validation loss, step 9: 4.5<",
          "validation loss, step 19: 4.75<", "learning rate, step 3: 0.001<", "gradient norm, step 3: 2<",
          "tokens a second, step 3: 12345<", "<b>4.5000 at step 9</b>", "12,345", "25.0 %",
          "to be &lt;or&gt; not", "after step 19", "a.txt &lt;x&gt;",
          "mantissa train --html &#39;a b.html&#39;"})
        EXPECT_TRUE(has(html, part)) << part;
    EXPECT_FALSE(has(html, "http-equiv"));
    EXPECT_FALSE(has(html, "mean of each"));
}

TEST(TrainingPage, LoadsItselfAgainWhileTheRunGoesOn) {
    TrainingPage page(run_of(1200));
    const std::string empty = page.html(TrainingState::runs, "now", 0.5);
    EXPECT_EQ(fault_of_page(empty), "");
    EXPECT_TRUE(has(empty, "No step of 1,200 is done, 0.5 s. Written now; "));
    EXPECT_TRUE(has(empty, "<meta http-equiv='refresh' content='10'>"));
    for (int step = 600; step < 660; ++step) page.add(point_of(step, 3));  // resumed
    // 60 steps in 30 s, and 540 are left.
    EXPECT_TRUE(has(page.html(TrainingState::runs, "now", 30),
                    "660 of 1,200 steps are done (60 of them on this page), 30 s so far, about 4 min 30 s "
                    "left. Written now; "));
}

TEST(TrainingPage, ALongRunIsThinnedAndKeepsItsPeaks) {
    TrainingPage page(run_of(100000));
    for (int step = 0; step < 100000; ++step)
        page.add(point_of(step, step == 77777 ? 99 : 3 + std::sin(step)));
    const std::string html = page.html(TrainingState::runs, "now", 100);
    EXPECT_EQ(fault_of_page(html), "");
    EXPECT_LT(html.size(), 200000u);
    EXPECT_TRUE(has(html, "mean of each 1792 steps"));
    EXPECT_TRUE(has(html, ">100</text>"));  // the axis reaches the peak
}

TEST(TrainingPage, StepsThatWereSkippedAreCountedAndLeaveNoHole) {
    TrainingPage page(run_of(3));
    page.add(point_of(0, 3));
    TrainingPoint bad = point_of(1, NAN);
    bad.applied = false;
    page.add(bad);
    page.add(point_of(2, 2));
    const std::string html = page.html(TrainingState::ended, "now", 1);
    EXPECT_EQ(fault_of_page(html), "");
    EXPECT_FALSE(has(html, "nan"));
    EXPECT_TRUE(has(html, "steps skipped, as not finite <b>1</b>"));
}

TEST(TrainingPage, TheLeastLossIsOfOneSetOfData) {
    const auto gone_on = [](const std::string& before, const std::string& now) {
        TrainingRun run = run_of(10);
        run.judged = before;
        TrainingPage first(run);
        first.add(point_of(3, 2));
        first.add_validation(1);
        run.judged = now;
        TrainingPage page(run);
        page.go_on(first.kept(1));
        page.add(point_of(7, 2));
        page.add_validation(2.5);
        return page.html(TrainingState::ended, "now", 2);
    };
    EXPECT_TRUE(has(gone_on("a", "a"), "1.0000 at step 3"));
    EXPECT_TRUE(has(gone_on("a", "b"), "2.5000 at step 7"));
}

}  // namespace
}  // namespace mantissa
