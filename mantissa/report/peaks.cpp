#include "mantissa/report/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/version.h"

namespace mantissa::inline v0 {

namespace {

using Rate = std::optional<double>;

/// In units of 10^12 or 10^9, or null.
nlohmann::json number(const Rate& rate, double unit) {
    return rate ? nlohmann::json(*rate / unit) : nlohmann::json(nullptr);
}

/// Four digits count: 0.2706, 19.49, 312, 4990.
std::string tera(const Rate& rate) {
    if (!rate) return "-";
    const double value = *rate / 1e12;
    const int decimals = value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : 1;
    return fmt::format("{:.{}f}", value, decimals);
}

std::string share(const Rate& measured, const Rate& theoretical) {
    return measured && theoretical ? fmt::format("{:.0f} %", 100 * *measured / *theoretical) : "-";
}

/// What is said of matrix modes and of vectors: the first is known by computation, the second was measured.
struct Row {
    std::string name;
    Rate dense, sparse, measured;
    std::string by;
    Rate whole = {}, whole_sparse = {};
};

std::string rows_text(const std::string& heading, const std::vector<Row>& rows) {
    const auto any = [&](auto member) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const Row& row) { return (row.*member).has_value(); });
    };
    const bool sparse = any(&Row::sparse), measured = any(&Row::measured);
    const bool whole = any(&Row::whole), whole_sparse = any(&Row::whole_sparse);
    const auto line = [&](const std::array<std::string, 8>& cell) {
        std::string text = fmt::format("{:<16} {:>11}", cell[0], cell[1]);
        if (sparse) text += fmt::format(" {:>11}", cell[2]);
        if (measured) text += fmt::format(" {:>9} {:>6}", cell[3], cell[4]);
        if (whole) text += fmt::format(" {:>9}", cell[5]);
        if (whole_sparse) text += fmt::format(" {:>9}", cell[6]);
        if (measured) text += "  " + cell[7];
        return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
    };
    std::string text =
        line({heading, "theoretical", "2:4 sparse", "measured", "share", "whole", "whole 2:4", "by"});
    for (const Row& row : rows)
        text += line({row.name, tera(row.dense), tera(row.sparse), tera(row.measured),
                      share(row.measured, row.dense), tera(row.whole), tera(row.whole_sparse), row.by});
    return text;
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
    std::vector<Row> matrix, vector;
    for (const MatrixPeak& peak : peaks.matrix)
        matrix.push_back({peak.inputs + "*" + peak.inputs + "+" + peak.accumulator, peak.dense, peak.sparse,
                          peak.measured, peak.by, peak.whole, peak.whole_sparse});
    for (const VectorPeak& peak : peaks.vector)
        vector.push_back({peak.format, peak.rate, {}, peak.measured, peak.by});
    std::string text =
        peaks.device + "\nTFLOP/s (s8, s4, b1 and s32: TOP/s), a multiply-add counted as 2\n\n";
    text += rows_text("matrix", matrix) + "\n" + rows_text("vector", vector) + "\n" + bandwidths_text(peaks);
    if (!peaks.notes.empty()) text += "\n";
    for (const std::string& note : peaks.notes) text += note + "\n";
    return text;
}

std::string peaks_json(const FormatPeaks& peaks) {
    nlohmann::ordered_json json;
    json["command"] = "peaks";
    json["version"] = version();
    json["commit"] = commit();
    json["device"] = peaks.device;
    json["matrix"] = nlohmann::json::array();
    for (const MatrixPeak& peak : peaks.matrix)
        json["matrix"].push_back({{"inputs", peak.inputs},
                                  {"accumulator", peak.accumulator},
                                  {"dense_tflops", number(peak.dense, 1e12)},
                                  {"sparse_tflops", number(peak.sparse, 1e12)},
                                  {"measured_tflops", number(peak.measured, 1e12)},
                                  {"whole_tflops", number(peak.whole, 1e12)},
                                  {"whole_sparse_tflops", number(peak.whole_sparse, 1e12)}});
    json["vector"] = nlohmann::json::array();
    for (const VectorPeak& peak : peaks.vector)
        json["vector"].push_back({{"format", peak.format},
                                  {"tflops", number(peak.rate, 1e12)},
                                  {"measured_tflops", number(peak.measured, 1e12)}});
    json["memory_gbs"] = number(peaks.memory, 1e9);
    json["memory_measured_gbs"] = number(peaks.memory_measured, 1e9);
    json["l2_measured_gbs"] = number(peaks.l2_measured, 1e9);
    json["l1_measured_gbs"] = number(peaks.l1_measured, 1e9);
    json["notes"] = peaks.notes;
    return json.dump(2) + "\n";
}

}  // namespace mantissa
