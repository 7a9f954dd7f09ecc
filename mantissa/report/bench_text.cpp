// The benchmark's report as the tutorial's table and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/system_memory.h"
#include "mantissa/base/version.h"
#include "mantissa/report/bench.h"
#include "mantissa/report/bench_published.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

std::string row_of(const BenchReport& report, const BenchResult& result) {
    std::string text =
        fmt::format("{:<13} {:<9} {:>8.1f} {:>6.1f} {:>7.2f}x {:>8.4f} {:>6.0f} MB {:>5.1f} %",
                    report.model.name, result.precision, result.rate, result.interval, result.speedup,
                    result.losses.front(), megabytes(result.peak_bytes), 100 * result.mfu);
    if (const PublishedBench* row = published_bench(report.model.name, result.precision))
        return text + fmt::format("  | {:>7.1f} {:>7.2f}x {:>9.5f}\n", row->rate, row->speedup, row->loss);
    return text + fmt::format("  | {:>7} {:>8} {:>9}\n", "-", "-", "-");
}

}  // namespace

std::string bench_table(const BenchReport& report) {
    std::string text = fmt::format(
        "{}, {} parameters{}, {} a batch, {}\n", report.model.name,
        grouped(static_cast<double>(report.model.parameters)),
        report.statistics == 0
            ? std::string()
            : fmt::format(" ({} with running statistics, as Keras counts)",
                          grouped(static_cast<double>(report.model.parameters + report.statistics))),
        report.model.examples, report.optimizer);
    text +=
        fmt::format("{}, {}, {} threads\n\n", report.target.name, report.target.isa, report.target.threads);
    text += fmt::format("{:<13} {:<9} {:>8} {:>6} {:>8} {:>8} {:>9} {:>7}  | {:>7} {:>8} {:>9}\n", "model",
                        "precision", "img/s", "+-", "speed-up", "loss", "memory", "MFU", "A100", "speed-up",
                        "loss");
    for (const BenchResult& result : report.results) text += row_of(report, result);
    text += "\nloss: of the first batch. A100: the tutorial's, 128 images of 224 x 224 a batch\n";
    for (const BenchResult& result : report.results) {
        text += fmt::format("  {:<9} {}", result.precision, fmt::join(result.kernels, ", "));
        if (result.skipped_steps > 0)
            text += fmt::format("; {} steps skipped by the loss scale", result.skipped_steps);
        text += "\n";
    }
    return text;
}

std::string bench_json(const BenchReport& report) {
    nlohmann::ordered_json json;
    json["command"] = "bench";
    json["version"] = version();
    json["commit"] = commit();
    json["machine"] = {
        {"cpu", report.target.name}, {"isa", report.target.isa}, {"threads", report.target.threads}};
    json["model"] = {{"name", report.model.name},
                     {"parameters", report.model.parameters},
                     {"running_statistics", report.statistics}};
    json["optimizer"] = report.optimizer;
    json["batch"] = report.size.batch;
    json["warmup_batches"] = report.size.warmup_batches;
    json["batches_per_iteration"] = report.size.batches;
    json["iterations"] = report.size.iterations;
    json["peak_resident_bytes"] = peak_resident_memory();
    for (const BenchResult& result : report.results)
        json["results"].push_back({{"precision", result.precision},
                                   {"losses", result.losses},
                                   {"images_per_second", result.rates},
                                   {"mean", result.rate},
                                   {"interval", result.interval},
                                   {"speedup", result.speedup},
                                   {"mfu", result.mfu},
                                   {"peak_bytes", result.peak_bytes},
                                   {"build_ms", result.build_milliseconds},
                                   {"skipped_steps", result.skipped_steps},
                                   {"kernels", result.kernels}});
    return json.dump(2) + "\n";
}

}  // namespace mantissa
