// The benchmark's report: the tutorial's table, a page with the A100's rates beside, and JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/report/bench.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

// The tutorial's table: one A100, 128 images of 224 x 224 a batch.
struct PublishedBench {
    std::string_view model, precision;
    double rate;     ///< images a second
    double speedup;  ///< over FP32
    double loss;     ///< of the first iteration
};

constexpr PublishedBench a100_bench[] = {
    {"ResNet50", "fp32", 455.9, 1.00, 7.45765},    {"ResNet50", "tf32", 750.6, 1.65, 7.45651},
    {"ResNet50", "fp16", 1087.6, 2.38, 7.45703},   {"VGG19", "fp32", 212.7, 1.00, 6.90778},
    {"VGG19", "tf32", 550.3, 2.59, 6.90778},       {"VGG19", "fp16", 1099.8, 5.17, 6.90625},
    {"DenseNet121", "fp32", 391.9, 1.00, 6.96142}, {"DenseNet121", "tf32", 591.5, 1.51, 6.96145},
    {"DenseNet121", "fp16", 876.2, 2.24, 6.96094}};

/// Null if the table has no such row.
const PublishedBench* published_bench(std::string_view model, std::string_view precision) {
    for (const PublishedBench& row : a100_bench)
        if (row.model == model && row.precision == precision) return &row;
    return nullptr;
}

Table results_of(const BenchReport& report) {
    Table table{{{"", "model", nullptr, Column::In::text},
                 {"precision", "precision"},
                 "losses",
                 "images_per_second",
                 {"mean", "img/s", decimals_of<1>},
                 {"interval", "+-", decimals_of<1>},
                 {"speedup", "speed-up", times},
                 {"", "first loss", decimals_of<5>},
                 {"peak_bytes", "memory", megabytes_text},
                 {"mfu", "MFU", percent},
                 {"", "A100: img/s", decimals_of<1>},
                 {"", "speed-up", times},
                 {"", "first loss", decimals_of<5>},
                 "build_ms",
                 {"skipped_steps", "steps skipped"},
                 {"kernels", "kernels", nullptr, Column::In::page}}};
    for (const BenchResult& result : report.results) {
        const PublishedBench* a100 = published_bench(report.model.name, result.precision);
        const auto published = [&](double PublishedBench::*figure) {
            return a100 ? Datum(a100->*figure) : Datum();
        };
        table.add(report.model.name, result.precision, result.losses, result.rates, result.rate,
                  result.interval, result.speedup, result.losses.front(), result.peak_bytes, result.mfu,
                  published(&PublishedBench::rate), published(&PublishedBench::speedup),
                  published(&PublishedBench::loss), result.build_milliseconds, result.skipped_steps,
                  result.kernels);
    }
    return table;
}

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
        "<h2>Images a second</h2>\n<p class='note'>Means of {} of {}, and how many times "
        "faster than {}. Each side has its own scale.</p>\n<div class='columns'><div><h3>This machine, {} a "
        "batch</h3>\n{}</div>",
        count_text(report.size.iterations, "iteration"), count_text(report.size.batches, "batch", "batches"),
        report.results.front().precision, report.model.examples, html::bars(here));
    if (!there.empty())
        text += fmt::format(
            "<div><h3>One A100, 128 images a batch</h3>\n{}<p class='note'>The mixed-precision tutorial's "
            "figures. Nothing on this page was measured on an A100.</p></div>",
            html::bars(there));
    return text + "</div>\n";
}

std::string iterations(const BenchReport& report) {
    std::vector<html::Curve> rates;
    for (std::size_t i = 0; i < report.results.size(); ++i)
        rates.push_back({report.results[i].precision, report.results[i].rates, i});
    return "<h2>Each iteration</h2>\n" + html::curves(rates, "images a second");
}

}  // namespace

std::string bench_table(const BenchReport& report) {
    std::string text = fmt::format(
        "{}, {} parameters{}, {} a batch, {}\n{}, {}, {}\n\n{}", report.model.name,
        grouped(static_cast<double>(report.model.parameters)),
        report.statistics == 0
            ? std::string()
            : fmt::format(" ({} with running statistics, as Keras counts)",
                          grouped(static_cast<double>(report.model.parameters + report.statistics))),
        report.model.examples, report.optimizer, report.target.name, report.target.isa,
        threads_text(report.target), results_of(report).text());
    text += "\n";
    if (std::ranges::any_of(report.results, [&](const BenchResult& result) {
            return published_bench(report.model.name, result.precision) != nullptr;
        }))
        text += "A100: the tutorial's, 128 images of 224 x 224 a batch\n";
    for (const BenchResult& result : report.results)
        text += fmt::format("  {:<9} {}\n", result.precision, fmt::join(result.kernels, ", "));
    return text;
}

std::string bench_html(const BenchReport& report, const std::string& command) {
    const std::string title = fmt::format("{}: {:.1f} images a second in {}", report.model.name,
                                          report.results.front().rate, report.results.front().precision);
    return html::page(
        title,
        fmt::format("<p>{} parameters, {}, {} a batch, on {}, {}, {}.</p>\n{}{}"
                    "<p class='note'>+-: 1.96 standard deviations of the iterations. MFU: the model's "
                    "arithmetic a second over the machine's fastest matrix peak. Memory: planned, state, "
                    "activations and inputs. A100: the tutorial's.</p>\n{}{}",
                    grouped(static_cast<double>(report.model.parameters)), report.optimizer,
                    report.model.examples, html::escaped(report.target.name), report.target.isa,
                    threads_text(report.target), rates(report), html::table(results_of(report).on_page()),
                    iterations(report), html::footer(command)));
}

std::string bench_json(const BenchReport& report) {
    return json_of("bench", {{"machine", machine_of(report.target)},
                             {"model.name", report.model.name},
                             {"model.parameters", report.model.parameters},
                             {"model.running_statistics", report.statistics},
                             {"optimizer", report.optimizer},
                             {"batch", report.size.batch},
                             {"warmup_batches", report.size.warmup_batches},
                             {"batches_per_iteration", report.size.batches},
                             {"iterations", report.size.iterations},
                             {"peak_resident_bytes", peak_resident_memory()},
                             {"results", results_of(report)}});
}

}  // namespace mantissa
