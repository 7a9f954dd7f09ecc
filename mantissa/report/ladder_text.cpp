// The ladder's report as a table and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/version.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

/// A number that is not a number has no place in JSON: null.
nlohmann::json number(double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

std::string peaks_line(const Peaks& peaks) {
    std::string line = fmt::format("{:.1f} GFLOP/s FP32 FMA", peaks.f32_fma / 1e9);
    if (peaks.bf16_matrix > 0) line += fmt::format(", {:.2f} TFLOP/s BF16", peaks.bf16_matrix / 1e12);
    return line + fmt::format(", {:.1f} GB/s copy", peaks.copy / 1e9);
}

std::string padding_text(const RungReport& rung) {
    if (rung.padded.empty()) return "; no size to pad";
    std::string text;
    for (const PaddedParameter& parameter : rung.padded)
        text += fmt::format("; {} padded from {} rows to {}", parameter.name, parameter.rows,
                            parameter.rows + parameter.zero_rows);
    return text;
}

nlohmann::json padding_json(const RungReport& rung) {
    nlohmann::json list = nlohmann::json::array();
    for (const PaddedParameter& parameter : rung.padded)
        list.push_back({{"name", parameter.name},
                        {"rows", parameter.rows},
                        {"padded_rows", parameter.rows + parameter.zero_rows}});
    return list;
}

std::string loss_line(const RungReport& rung) {
    std::string line = fmt::format("  {:<9}", rung.name);
    for (std::size_t i = 0; i < rung.losses.size(); ++i) {
        if (i > 0 && i % 10 == 0) line += fmt::format("\n  {:<9}", "");
        line += fmt::format(" {:7.4f}", rung.losses[i]);
    }
    return line + "\n";
}

/// The rung that takes the least time; there is one.
const RungReport& fastest_of(const LadderReport& report) {
    return *std::ranges::min_element(report.rungs, {}, &RungReport::milliseconds);
}

/// What to type for its speed.
std::string fastest_line(const LadderReport& report) {
    const RungReport& rung = fastest_of(report);
    return fmt::format("fastest here: {}, {} {}/s; to train so: --policy {} --passes {}\n", rung.name,
                       grouped(rung.units_per_second), report.model.unit, rung.policy,
                       rung.passes.empty() ? "none" : fmt::format("{}", fmt::join(rung.passes, ",")));
}

}  // namespace

std::string ladder_table(const LadderReport& report) {
    std::string text = fmt::format("{}, {} parameters, {} a step, {}\n", report.model.name,
                                   grouped(static_cast<double>(report.model.parameters)),
                                   report.model.examples, report.optimizer);
    text += fmt::format("{}, {}, {} threads\n", report.target.name, report.target.isa, report.target.threads);
    if (!report.target.cannot_compile.empty())
        text += fmt::format("without the rungs from compiled on: {}\n", report.target.cannot_compile);
    text +=
        fmt::format("peaks measured between the steps{}: {}\n\n",
                    report.known_from.empty() ? "" : fmt::format(", or earlier and {}", report.known_from),
                    peaks_line(report.peaks));
    text += fmt::format("{:<9} {:>9} {:>7} {:>10} {:>8} {:>7} {:>7} {:>7} {:>9} {:>8}  {}\n", "rung",
                        "ms/step", "+-", report.model.unit + "/s", "speed-up", "step", "MFU", "of unit",
                        "memory", "build", "loss");
    for (const RungReport& rung : report.rungs)
        text += fmt::format(
            "{:<9} {:>9.1f} {:>7.1f} {:>10} {:>7.2f}x {:>6.2f}x {:>5.1f} % {:>5.1f} % {:>6.0f} MB {:>5.0f} "
            "ms  {:.4f} -> {:.4f}\n",
            rung.name, rung.milliseconds, rung.deviation, grouped(rung.units_per_second), rung.speedup,
            rung.step_speedup, 100 * rung.mfu, 100 * rung.share_of_unit_peak, megabytes(rung.peak_bytes),
            rung.build_milliseconds, rung.losses.front(), rung.losses.back());
    for (const SkippedRung& rung : report.skipped)
        text += fmt::format("{:<9} does not apply: {}\n", rung.name, rung.reason);
    text +=
        std::isinf(report.rungs.front().loss_tolerance)
            ? "\nlosses, not held against one another: batch norms over few images amplify every rounding\n"
            : "\nlosses\n";
    for (const RungReport& rung : report.rungs) text += loss_line(rung);
    text += "kernels of matmul, and of attention and the joint loss where they are one; what was padded\n";
    for (const RungReport& rung : report.rungs) {
        text += fmt::format("  {:<9} {}", rung.name, fmt::join(rung.matmul_kernels, ", "));
        for (const auto* kernels : {&rung.attention_kernels, &rung.loss_kernels})
            if (!kernels->empty()) text += fmt::format("; {}", fmt::join(*kernels, ", "));
        if (rung.pads) text += padding_text(rung);
        text += "\n";
    }
    text += fmt::format(
        "memory planned: {:.1f} MB = {:.1f} state + {:.1f} activations and gradients + {:.1f} inputs + "
        "{:.1f} the program and its text{}\n",
        megabytes(report.planned_bytes()), megabytes(report.memory.state), megabytes(report.memory.arena),
        megabytes(report.memory.inputs), megabytes(report.process_bytes),
        report.scratch_bytes == 0 ? ""
                                  : fmt::format(" + {:.1f} to measure the peak of copying, which training "
                                                "does not need",
                                                megabytes(report.scratch_bytes)));
    if (!report.rungs.empty()) text += fastest_line(report);
    return text;
}

std::string ladder_json(const LadderReport& report) {
    nlohmann::ordered_json json;
    json["command"] = "ladder";
    json["version"] = version();
    json["commit"] = commit();
    const Peaks& peaks = report.peaks;
    json["machine"] = {{"cpu", report.target.name},
                       {"isa", report.target.isa},
                       {"threads", report.target.threads},
                       {"peaks",
                        {{"f32_fma_tflops", number(peaks.f32_fma / 1e12)},
                         {"bf16_tile_tflops",
                          peaks.bf16_matrix > 0 ? number(peaks.bf16_matrix / 1e12) : nlohmann::json(nullptr)},
                         {"copy_gbs", number(peaks.copy / 1e9)}}}};
    json["model"] = {{"name", report.model.name}, {"parameters", report.model.parameters}};
    json["batch"] = report.model.batch;
    json["sequence"] = report.model.units_per_example;
    json["planned_bytes"] = report.planned_bytes();
    for (const RungReport& rung : report.rungs)
        json["rungs"].push_back({{"name", rung.name},
                                 {"ms_per_step", number(rung.milliseconds)},
                                 {"ms_mad", number(rung.deviation)},
                                 {report.model.unit + "_per_second", number(rung.units_per_second)},
                                 {"speedup", number(rung.speedup)},
                                 {"step_speedup", number(rung.step_speedup)},
                                 {"mfu", number(rung.mfu)},
                                 {"share_of_unit_peak", number(rung.share_of_unit_peak)},
                                 {"peak_bytes", rung.peak_bytes},
                                 {"build_ms", number(rung.build_milliseconds)},
                                 {"losses", rung.losses},
                                 {"loss_tolerance", number(rung.loss_tolerance)},
                                 {"bounds",
                                  {{"compute", number(rung.roofline.share_of(Bound::compute))},
                                   {"memory", number(rung.roofline.share_of(Bound::memory))},
                                   {"latency", number(rung.roofline.share_of(Bound::latency))}}},
                                 {"kernels",
                                  {{"matmul", rung.matmul_kernels},
                                   {"attention", rung.attention_kernels},
                                   {"linear_cross_entropy", rung.loss_kernels}}},
                                 {"padded", padding_json(rung)}});
    if (!report.rungs.empty()) {
        const RungReport& fastest = fastest_of(report);
        json["fastest"] = {{"rung", fastest.name}, {"policy", fastest.policy}, {"passes", fastest.passes}};
    }
    json["skipped"] = nlohmann::ordered_json::array();
    for (const SkippedRung& rung : report.skipped)
        json["skipped"].push_back({{"name", rung.name}, {"reason", rung.reason}});
    return json.dump(2) + "\n";
}

}  // namespace mantissa
