#include "mantissa/report/paper_roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/report/peaks.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

constexpr double trillion = 1e12;

/// The rate of products in a format, summed in FP32.
double sheet_rate(const FormatPeaks& peaks, std::string_view inputs) {
    for (const MatrixPeak& peak : peaks.matrix)
        if (peak.inputs == inputs && peak.accumulator == "f32") return peak.dense.value();
    for (const VectorPeak& peak : peaks.vector)
        if (peak.format == inputs) return peak.rate.value();
    throw InternalError(fmt::format("a data sheet without {}", inputs));
}

/// Rates of an H200, for BF16 products of 8,192 square and copies in its memory, by PyTorch: 790 TFLOP/s and
/// 4.3 TB/s. Other products are assumed to reach the same share of the data sheet.
CardRates measured_of_h200(const CardRates& sheet) {
    const double reached = 790 * trillion / sheet.sixteen_bits;
    return {.f32 = reached * sheet.f32,
            .tf32 = reached * sheet.tf32,
            .sixteen_bits = 790 * trillion,
            .memory = 4.3 * trillion,
            .fp8 = reached * sheet.fp8};
}

double rate_of(const Arithmetic& arithmetic, const CardRates& rates) {
    if (arithmetic.multiply == "bf16" || arithmetic.multiply == "f16") return rates.sixteen_bits;
    if (arithmetic.multiply == "fp8") return rates.fp8;
    return arithmetic.multiply == "tf32" ? rates.tf32 : rates.f32;
}

struct LeastTime {
    double arithmetic = 0, memory = 0;

    double seconds() const { return std::max(arithmetic, memory); }
};

LeastTime min_time(const Cost& cost, const Arithmetic& arithmetic, const CardRates& rates) {
    return {static_cast<double>(cost.flops) / rate_of(arithmetic, rates),
            static_cast<double>(cost.bytes) / rates.memory};
}

struct PaperLine {
    std::string op, pass, kernel;
    std::int64_t launches = 0;
    Cost cost;
    double by_sheet = 0, by_measured = 0;
    double waits_for_memory = 0;  ///< seconds by the data sheet of memory-bound launches
};

struct PaperSums {
    std::int64_t launches = 0;
    Cost cost;
    double by_sheet = 0, by_measured = 0;

    void add(const PaperLine& line) {
        launches += line.launches;
        cost.flops += line.cost.flops;
        cost.bytes += line.cost.bytes;
        by_sheet += line.by_sheet;
        by_measured += line.by_measured;
    }
};

PaperLine line_of(const Plan& plan, const PlannedNode& planned, const Cost& cost, const Card& card) {
    const Node& node = plan.graph().node(planned.node);
    const LeastTime sheet = min_time(cost, planned.arithmetic, card.sheet);
    return {.op = std::string(node.op->name),
            .pass = std::string(name_of(node.origin.stage)),
            .kernel = planned.kernel,
            .launches = planned.launches,
            .cost = cost,
            .by_sheet = sheet.seconds(),
            .by_measured = card.measured ? min_time(cost, planned.arithmetic, *card.measured).seconds() : 0,
            .waits_for_memory = sheet.memory > sheet.arithmetic ? sheet.seconds() : 0};
}

std::vector<PaperLine> lines_of(const Plan& plan, const Card& card) {
    std::map<std::tuple<std::string, std::string, std::string>, PaperLine> by_key;
    for (const PlannedNode& planned : plan.nodes()) {
        const PaperLine one = line_of(plan, planned, planned.cost, card);
        const auto [entry, is_new] = by_key.try_emplace({one.op, one.pass, one.kernel}, one);
        if (is_new) continue;
        PaperLine& line = entry->second;
        line.launches += one.launches;
        line.cost.flops += one.cost.flops;
        line.cost.bytes += one.cost.bytes;
        line.by_sheet += one.by_sheet;
        line.by_measured += one.by_measured;
        line.waits_for_memory += one.waits_for_memory;
    }
    std::vector<PaperLine> lines;
    for (auto& [key, line] : by_key) lines.push_back(std::move(line));
    std::ranges::sort(lines, std::greater{}, &PaperLine::by_sheet);
    return lines;
}

/// Work that no fusion saves: products, attention and the update, each once, with operands and results moved
/// once.
PaperSums indispensable(const Plan& plan, const Card& card) {
    PaperSums sums;
    for (const PlannedNode& planned : plan.nodes()) {
        const Node& node = plan.graph().node(planned.node);
        const bool is_update = node.origin.stage == Stage::update && node.op->writes_over();
        if (planned.arithmetic.multiply.empty() && !is_update) continue;
        PaperLine line =
            line_of(plan, planned,
                    node.op->cost(plan.graph().input_types(node), node.outputs, node.attributes), card);
        line.launches = 1;
        sums.add(line);
    }
    return sums;
}

/// The least time of the step if 16-bit and FP8 matrix products ran at a shorter format's rate and other work
/// did not change: attention and the head stay, as under the policies.
double seconds_below_sixteen_bits(const Plan& plan, const Card& card, double rate) {
    CardRates shorter = card.sheet;
    shorter.sixteen_bits = shorter.fp8 = rate;
    double seconds = 0;
    for (const PlannedNode& planned : plan.nodes()) {
        const std::string_view op = plan.graph().node(planned.node).op->name;
        const bool is_product =
            op == "matmul" || op == "scaled_matmul" || op == "fused" || op.starts_with("conv2d");
        seconds += min_time(planned.cost, planned.arithmetic, is_product ? shorter : card.sheet).seconds();
    }
    return seconds;
}

std::string rates_text(const CardRates& rates) {
    return fmt::format("{}{:.0f} TFLOP/s in 16 bits, {:.0f} in TF32, {:.1f} in FP32, {:.2f} TB/s",
                       rates.fp8 > 0 ? fmt::format("{:.0f} TFLOP/s in FP8, ", rates.fp8 / trillion) : "",
                       rates.sixteen_bits / trillion, rates.tf32 / trillion, rates.f32 / trillion,
                       rates.memory / trillion);
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string sums_text(const PaperSums& sums, const Card& card) {
    std::string text =
        fmt::format("{}, {:.2f} TFLOP, {:.2f} GB, {} ms", count_text(sums.launches, "launch", "launches"),
                    static_cast<double>(sums.cost.flops) / trillion,
                    static_cast<double>(sums.cost.bytes) / 1e9, milliseconds(sums.by_sheet));
    if (card.measured) text += fmt::format(" ({} ms by measured rates)", milliseconds(sums.by_measured));
    return text;
}

}  // namespace

Card card_of(const std::string& accelerator) {
    const FormatPeaks peaks = accelerator_peaks(accelerator);
    Card card{.name = peaks.device,
              .architecture = accelerator == "a100" ? "sm_80" : "sm_90",
              .sheet = {.f32 = sheet_rate(peaks, "f32"),
                        .tf32 = sheet_rate(peaks, "tf32"),
                        .sixteen_bits = sheet_rate(peaks, "bf16"),
                        .memory = peaks.memory.value()}};
    for (const char* format : {"e4m3", "e2m1"})
        for (const MatrixPeak& peak : peaks.matrix)
            if (peak.inputs == format) card.shorter.emplace_back(format, peak.dense.value());
    if (!card.shorter.empty()) card.sheet.fp8 = card.shorter.front().second;
    if (accelerator == "h200") card.measured = measured_of_h200(card.sheet);
    return card;
}

std::string paper_roofline_table(const Plan& plan, double model_flops, const Card& card) {
    constexpr const char* row = "{:<20} {:<9} {:>8} {:>9} {:>8} {:>9} {:>9} {:<11} {}\n";
    std::string text = fmt::format("{}, on paper: {}\n", card.name, rates_text(card.sheet));
    if (card.measured) text += fmt::format("measured on one: {}\n", rates_text(*card.measured));
    text += "\n" + fmt::format(row, "operation", "pass", "launches", "GFLOP", "GB", "least ms",
                               card.measured ? "measured" : "", "waits for", "kernel");
    PaperSums all;
    for (const PaperLine& line : lines_of(plan, card)) {
        all.add(line);
        text += fmt::format(row, line.op, line.pass, line.launches,
                            fmt::format("{:.1f}", static_cast<double>(line.cost.flops) / 1e9),
                            fmt::format("{:.3f}", static_cast<double>(line.cost.bytes) / 1e9),
                            milliseconds(line.by_sheet), card.measured ? milliseconds(line.by_measured) : "",
                            2 * line.waits_for_memory > line.by_sheet ? "memory" : "arithmetic", line.kernel);
    }
    const auto share = [&](double seconds) {
        return percent(model_flops / card.sheet.sixteen_bits / seconds);
    };
    text += fmt::format("\nthe step: {}\n", sums_text(all, card));
    text += fmt::format("its products, attention and update alone, each once: {}\n",
                        sums_text(indispensable(plan, card), card));
    for (const auto& [format, rate] : card.shorter)
        text += fmt::format("with layers' products in {} ({:.0f} TFLOP/s): {} ms\n", format, rate / trillion,
                            milliseconds(seconds_below_sixteen_bits(plan, card, rate)));
    text += fmt::format("MFU of {:.0f} TFLOP/s in that time: {}", card.sheet.sixteen_bits / trillion,
                        share(all.by_sheet));
    if (card.measured) text += fmt::format(", by measured rates {}", share(all.by_measured));
    return text + "\n";
}

}  // namespace mantissa
