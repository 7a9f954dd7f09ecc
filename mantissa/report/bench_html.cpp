// The benchmark's report as one page: rates beside the A100's, each iteration, losses and memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/report/bench.h"
#include "mantissa/report/bench_published.h"
#include "mantissa/report/html.h"
#include "mantissa/report/html_charts.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

std::string rates(const BenchReport& report) {
    std::vector<html::Bar> here, there;
    for (const BenchResult& result : report.results)
        here.push_back({result.precision,
                        {{result.rate, 0, fmt::format("+-{:.1f} img/s", result.interval)}},
                        fmt::format("{:.1f} img/s, {:.2f}x", result.rate, result.speedup)});
    for (const PublishedBench& row : a100_bench)
        if (row.model == report.model.name)
            there.push_back({std::string(row.precision),
                             {{row.rate, 7, ""}},
                             fmt::format("{:.1f} img/s, {:.2f}x", row.rate, row.speedup)});
    std::string text = fmt::format(
        "<h2>Images a second</h2>\n<p class='note'>Means of {} iterations of {} batches, and how many times "
        "faster than {}. Each side has its own scale.</p>\n<div class='columns'><div><h3>This machine, {} a "
        "batch</h3>\n{}</div>",
        report.size.iterations, report.size.batches, report.results.front().precision, report.model.examples,
        html::bars(here));
    if (!there.empty())
        text += fmt::format(
            "<div><h3>One A100, 128 images a batch</h3>\n{}<p class='note'>The mixed-precision tutorial's "
            "figures. Nothing on this page was measured on an A100.</p></div>",
            html::bars(there));
    return text + "</div>\n";
}

std::string result_table(const BenchReport& report) {
    std::vector<html::Row> rows;
    for (const BenchResult& result : report.results) {
        const PublishedBench* a100 = published_bench(report.model.name, result.precision);
        rows.push_back(
            {result.precision, fmt::format("{:.1f}", result.rate), fmt::format("{:.1f}", result.interval),
             fmt::format("{:.2f}x", result.speedup), a100 ? fmt::format("{:.2f}x", a100->speedup) : "-",
             fmt::format("{:.5f}", result.losses.front()), a100 ? fmt::format("{:.5f}", a100->loss) : "-",
             grouped(megabytes(result.peak_bytes)), percent(result.mfu),
             fmt::format("{}", result.skipped_steps), fmt::format("{}", fmt::join(result.kernels, "; "))});
    }
    return html::table({"precision", "img/s", "+-", "speed-up", "speed-up, A100", "first loss",
                        "first loss, A100", "memory, MB", "MFU", "steps skipped", "kernels"},
                       rows) +
           "<p class='note'>+-: 1.96 standard deviations of the iterations. MFU: the model's arithmetic a "
           "second over the machine's fastest matrix peak. Memory: planned, state, activations and inputs."
           "</p>\n";
}

std::string iterations(const BenchReport& report) {
    std::vector<html::Curve> rates;
    for (std::size_t i = 0; i < report.results.size(); ++i)
        rates.push_back({report.results[i].precision, report.results[i].rates, i});
    return "<h2>Each iteration</h2>\n" + html::curves(rates, "images a second");
}

}  // namespace

std::string bench_html(const BenchReport& report, const std::string& command) {
    const std::string title = fmt::format("{}: {:.1f} images a second in {}", report.model.name,
                                          report.results.front().rate, report.results.front().precision);
    return html::page(title,
                      fmt::format("<p>{} parameters, {}, {} a batch, on {}, {}, {} threads.</p>\n",
                                  grouped(static_cast<double>(report.model.parameters)), report.optimizer,
                                  report.model.examples, html::escaped(report.target.name), report.target.isa,
                                  report.target.threads) +
                          rates(report) + result_table(report) + iterations(report) + html::footer(command));
}

}  // namespace mantissa
