#include "mantissa/report/peaks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

namespace {

enum class Clock { matrix, vector };
enum class Sparsity { none, two_of_four };  ///< the second doubles the rate

struct MatrixFact {
    const char* inputs;
    const char* accumulator;
    int multiply_adds;  ///< per unit and cycle, dense; 0: no such mode
    Sparsity sparsity = Sparsity::none;
    Clock clock = Clock::matrix;
};

struct VectorFact {
    const char* format;
    int multiply_adds;  ///< per multiprocessor and cycle
};

struct Accelerator {
    const char* name;
    const char* description;
    int multiprocessors;
    int matrix_units;  ///< per multiprocessor
    double matrix_clock, vector_clock;
    std::span<const MatrixFact> matrix;
    std::span<const VectorFact> vector;
    int memory_bits;         ///< width of the interface
    double bits_per_second;  ///< per bit of the interface
    const char* note = "";
};

constexpr auto sparse = Sparsity::two_of_four;

constexpr std::array ampere_matrix{
    MatrixFact{"f64", "f64", 16},           MatrixFact{"tf32", "f32", 128, sparse},
    MatrixFact{"f16", "f32", 256, sparse},  MatrixFact{"f16", "f16", 256, sparse},
    MatrixFact{"bf16", "f32", 256, sparse}, MatrixFact{"s8", "s32", 512, sparse},
    MatrixFact{"s4", "s32", 1024, sparse},  MatrixFact{"b1", "s32", 4096},
};
constexpr std::array ampere_vector{VectorFact{"f64", 32}, VectorFact{"f32", 64}, VectorFact{"bf16", 128},
                                   VectorFact{"f16", 256}, VectorFact{"s32", 64}};

// Low precision runs at a lower clock than FP64.
constexpr std::array hopper_matrix{
    MatrixFact{"f64", "f64", 32, Sparsity::none, Clock::vector},
    MatrixFact{"tf32", "f32", 256, sparse},
    MatrixFact{"f16", "f32", 512, sparse},
    MatrixFact{"f16", "f16", 512, sparse},
    MatrixFact{"bf16", "f32", 512, sparse},
    MatrixFact{"e4m3", "f32", 1024, sparse},
    MatrixFact{"e5m2", "f32", 1024, sparse},
    MatrixFact{"s8", "s32", 1024, sparse},
    MatrixFact{"s4", "s32", 0},
    MatrixFact{"b1", "s32", 0},
};
constexpr std::array hopper_vector{VectorFact{"f64", 64}, VectorFact{"f32", 128}, VectorFact{"bf16", 256},
                                   VectorFact{"f16", 256}, VectorFact{"s32", 64}};
constexpr const char* hopper_note = "its datasheet has no rate for s4 and b1";

// HGX B200: 2.25 PFLOP/s in 16 bits, 4.5 in FP8 and FP6, 9 in FP4, all dense; 8 TB/s.
constexpr std::array blackwell_matrix{
    MatrixFact{"f64", "f64", 16, Sparsity::none, Clock::vector},
    MatrixFact{"tf32", "f32", 512, sparse},
    MatrixFact{"f16", "f32", 1024, sparse},
    MatrixFact{"f16", "f16", 1024, sparse},
    MatrixFact{"bf16", "f32", 1024, sparse},
    MatrixFact{"e4m3", "f32", 2048, sparse},
    MatrixFact{"e5m2", "f32", 2048, sparse},
    MatrixFact{"e3m2", "f32", 2048, sparse},
    MatrixFact{"e2m3", "f32", 2048, sparse},
    MatrixFact{"e2m1", "f32", 4096, sparse},
    MatrixFact{"s8", "s32", 2048, sparse},
    MatrixFact{"s4", "s32", 0},
    MatrixFact{"b1", "s32", 0},
};

// Figures from NVIDIA's datasheets and architecture papers.
constexpr std::array accelerators{
    Accelerator{.name = "a100",
                .description = "NVIDIA A100 SXM 80 GB",
                .multiprocessors = 108,
                .matrix_units = 4,
                .matrix_clock = 1.41e9,
                .vector_clock = 1.41e9,
                .matrix = ampere_matrix,
                .vector = ampere_vector,
                .memory_bits = 5120,
                .bits_per_second = 3.186e9},
    Accelerator{.name = "h100",
                .description = "NVIDIA H100 SXM 80 GB",
                .multiprocessors = 132,
                .matrix_units = 4,
                .matrix_clock = 1.83e9,
                .vector_clock = 1.98e9,
                .matrix = hopper_matrix,
                .vector = hopper_vector,
                .memory_bits = 5120,
                .bits_per_second = 5.235e9,
                .note = hopper_note},
    Accelerator{.name = "h200",
                .description = "NVIDIA H200 SXM 141 GB",
                .multiprocessors = 132,
                .matrix_units = 4,
                .matrix_clock = 1.83e9,
                .vector_clock = 1.98e9,
                .matrix = hopper_matrix,
                .vector = hopper_vector,
                .memory_bits = 6144,
                .bits_per_second = 6.25e9,
                .note = hopper_note},
    Accelerator{.name = "b200",
                .description = "NVIDIA B200 SXM 192 GB",
                .multiprocessors = 148,
                .matrix_units = 4,
                .matrix_clock = 1.86e9,
                .vector_clock = 1.98e9,
                .matrix = blackwell_matrix,
                .vector = hopper_vector,
                .memory_bits = 8192,
                .bits_per_second = 7.8125e9,
                .note = hopper_note},
};

const Accelerator& find(const std::string& name) {
    for (const Accelerator& accelerator : accelerators)
        if (name == accelerator.name) return accelerator;
    throw UserError(fmt::format("there is no accelerator '{}'; there are: {}", name,
                                fmt::join(accelerator_names(), ", ")));
}

MatrixPeak peak_of(const Accelerator& of, const MatrixFact& fact) {
    MatrixPeak peak{.inputs = fact.inputs, .accumulator = fact.accumulator};
    if (fact.multiply_adds == 0) return peak;
    const double clock = fact.clock == Clock::matrix ? of.matrix_clock : of.vector_clock;
    peak.dense = 2.0 * fact.multiply_adds * of.matrix_units * of.multiprocessors * clock;
    if (fact.sparsity == Sparsity::two_of_four) peak.sparse = 2 * *peak.dense;
    return peak;
}

std::string facts_line(const Accelerator& of) {
    return fmt::format(
        "computed: {} multiprocessors with {} matrix units each, {:g} GHz for low precision in matrix "
        "units, {:g} GHz else, memory {} bits wide at {:g} Gbit/s",
        of.multiprocessors, of.matrix_units, of.matrix_clock / 1e9, of.vector_clock / 1e9, of.memory_bits,
        of.bits_per_second / 1e9);
}

}  // namespace

std::vector<std::string> accelerator_names() {
    std::vector<std::string> names;
    for (const Accelerator& accelerator : accelerators) names.emplace_back(accelerator.name);
    return names;
}

FormatPeaks accelerator_peaks(const std::string& name) {
    const Accelerator& of = find(name);
    FormatPeaks peaks{.device = of.description};
    for (const MatrixFact& fact : of.matrix) peaks.matrix.push_back(peak_of(of, fact));
    for (const VectorFact& fact : of.vector)
        peaks.vector.push_back(
            {.format = fact.format, .rate = 2.0 * fact.multiply_adds * of.multiprocessors * of.vector_clock});
    peaks.memory = of.memory_bits * of.bits_per_second / 8;
    peaks.notes.push_back(facts_line(of));
    if (*of.note) peaks.notes.emplace_back(of.note);
    return peaks;
}

namespace {

using Rate = std::optional<double>;

/// Four digits: 0.2706, 19.49, 312, 4990.
std::string tera(double value) {
    return with_decimals(value, value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : 1);
}

/// In units of 10^12 or 10^9.
Datum in_units(const Rate& rate, double unit) { return rate ? Datum(*rate / unit) : nullptr; }

Datum share(const Rate& measured, const Rate& theoretical) {
    return measured && theoretical ? Datum(fmt::format("{:.0f} %", 100 * *measured / *theoretical)) : nullptr;
}

Table matrix_of(const FormatPeaks& peaks) {
    Table table{{{"", "matrix"},
                 "inputs",
                 "accumulator",
                 {"dense_tflops", "theoretical", tera},
                 {"sparse_tflops", "2:4 sparse", tera},
                 {"measured_tflops", "measured", tera},
                 {"", "share"},
                 {"whole_tflops", "whole", tera},
                 {"whole_sparse_tflops", "whole 2:4", tera},
                 {"", "by"}}};
    for (const MatrixPeak& peak : peaks.matrix)
        table.add(peak.inputs + "*" + peak.inputs + "+" + peak.accumulator, peak.inputs, peak.accumulator,
                  in_units(peak.dense, 1e12), in_units(peak.sparse, 1e12), in_units(peak.measured, 1e12),
                  share(peak.measured, peak.dense), in_units(peak.whole, 1e12),
                  in_units(peak.whole_sparse, 1e12), or_null(peak.by));
    return table;
}

Table vectors_of(const FormatPeaks& peaks) {
    Table table{{{"format", "vector"},
                 {"tflops", "theoretical", tera},
                 {"measured_tflops", "measured", tera},
                 {"", "share"},
                 {"", "by"}}};
    for (const VectorPeak& peak : peaks.vector)
        table.add(peak.format, in_units(peak.rate, 1e12), in_units(peak.measured, 1e12),
                  share(peak.measured, peak.rate), or_null(peak.by));
    return table;
}

std::string bandwidths_text(const FormatPeaks& peaks) {
    std::string text;
    const auto add = [&](const char* what, const Rate& bandwidth) {
        if (bandwidth) text += fmt::format("{:<34} {:>8.1f} GB/s\n", what, *bandwidth / 1e9);
    };
    add("memory, theoretical", peaks.memory);
    add("memory, copying, measured", peaks.memory_measured);
    add("L2, reading, all cores, measured", peaks.l2_measured);
    add("L1, reading, all cores, measured", peaks.l1_measured);
    return text;
}

}  // namespace

std::string peaks_table(const FormatPeaks& peaks) {
    std::string text =
        fmt::format("{}\nTFLOP/s (s8, s4, b1 and s32: TOP/s), a multiply-add counted as 2\n\n{}\n{}\n{}",
                    peaks.device, matrix_of(peaks).text(), vectors_of(peaks).text(), bandwidths_text(peaks));
    if (!peaks.notes.empty()) text += "\n";
    for (const std::string& note : peaks.notes) text += note + "\n";
    return text;
}

std::string peaks_json(const FormatPeaks& peaks) {
    return json_of("peaks", {{"device", peaks.device},
                             {"matrix", matrix_of(peaks)},
                             {"vector", vectors_of(peaks)},
                             {"memory_gbs", in_units(peaks.memory, 1e9)},
                             {"memory_measured_gbs", in_units(peaks.memory_measured, 1e9)},
                             {"l2_measured_gbs", in_units(peaks.l2_measured, 1e9)},
                             {"l1_measured_gbs", in_units(peaks.l1_measured, 1e9)},
                             {"notes", peaks.notes}});
}

}  // namespace mantissa
