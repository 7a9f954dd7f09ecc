// The ladder's page: its figures, the A100's beside them, and names that cannot become markup.
#include <gtest/gtest.h>

#include "mantissa/report/ladder.h"
#include "tests/support/html_page.h"

namespace mantissa {
namespace {

LadderReport small_report() {
    LadderReport report;
    report.target.name = "A <CPU> & more";
    report.target.isa = "avx512";
    report.target.threads = 2;
    report.peaks = {.f32_fma = 2e11, .bf16_matrix = 4e11, .copy = 5e10};
    report.model = {.name = "gpt2-<b>",
                    .parameters = 124439808,
                    .batch = 4,
                    .unit = "tokens",
                    .units_per_example = 1024,
                    .examples = "4 x 1024 tokens"};
    Roofline step{.title = {}, .peaks = report.peaks, .wall_seconds = 10, .entries = {}};
    step.entries.push_back({.op = "matmul",
                            .name = {},
                            .pass = "forward",
                            .kernel = "g",
                            .seconds = 7,
                            .bound = Bound::compute});
    step.entries.push_back({.op = "softmax",
                            .name = {},
                            .pass = "forward",
                            .kernel = "s",
                            .seconds = 2,
                            .bound = Bound::memory});
    report.rungs = {{.name = "fp32",
                     .milliseconds = 20000,
                     .deviation = 63.6,
                     .units_per_second = 206,
                     .share_of_unit_peak = 0.7,
                     .peak_bytes = 8'000'000'000,
                     .losses = {10.5, 9.25},
                     .matmul_kernels = {"gemm f32*f32+f32"},
                     .roofline = step},
                    {.name = "flash",
                     .milliseconds = 8000,
                     .units_per_second = 512,
                     .speedup = 2.5,
                     .step_speedup = 2.5,
                     .losses = {10.5, 9.2501},
                     .loss_tolerance = 0.02,
                     .matmul_kernels = {"gemm bf16*bf16+f32"},
                     .attention_kernels = {"attention bf16*bf16+f32"},
                     .roofline = step}};
    return report;
}

TEST(LadderPage, HasEveryFigureWithItsUnit) {
    const std::string page = ladder_html(small_report(), "mantissa ladder --model 'gpt2-<b>'");
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part :
         {"The ladder: gpt2-&lt;b&gt;, 2.50x from fp32 to flash", "124,439,808 parameters",
          "on A &lt;CPU&gt; &amp; more", "20,000 ms, 1.00x", "8,000 ms, 2.50x",
          "20000.0</td><td class='n'>63.6", "8,000 MB",
          // Losses, and how far they may lie apart.
          "+0.00010", "0.02", "flash, step 1: 9.2501", "flash, step 1: 0.0001",
          // The bound of each kernel.
          "70.0 % of its unit&#39;s peak", "compute: 70.0 %", "memory: 20.0 %",
          "matmul 70.0 %, softmax 20.0 %", "gemm bf16*bf16+f32; attention bf16*bf16+f32", "200.0 GFLOP/s",
          "400.0 GFLOP/s", "50.0 GB/s", "mantissa ladder --model &#39;gpt2-&lt;b&gt;&#39;"})
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in\n" << page;
}

TEST(LadderPage, ShowsTheA100sClimbAsPublished) {
    const std::string page = ladder_html(small_report(), "");
    for (const char* part : {"1,000 ms, 1.00x", "333 ms, 3.00x", "300 ms, 3.33x", "129 ms, 7.75x",
                             "96 ms, 10.42x", "93 ms, 10.75x", "Karpathy"})
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in\n" << page;
    // Beside our own flash stands the A100's.
    EXPECT_NE(page.find("<td class='n'>2.50x</td><td class='n'>2.50x</td><td class='n'>10.42x</td>"),
              std::string::npos)
        << page;
}

}  // namespace
}  // namespace mantissa
