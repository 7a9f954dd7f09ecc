#include "mantissa/report/peaks.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

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
