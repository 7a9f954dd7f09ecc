#include "mantissa/report/kept_peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

constexpr int file_version = 2;                  // 1 had rates of AMX tiles measured on zeros
constexpr std::size_t max_file_bytes = 1 << 20;  // some thousand machines
// A thousand times the fastest machine's BF16 rate: anything above is no measurement.
constexpr double max_rate = 1e18;
// The least rise that is stored: less is noise.
constexpr double min_rise = 1.002;

std::string today() {
    const std::chrono::year_month_day day(
        std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
    return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                       static_cast<unsigned>(day.day()));
}

Json key_of(const Target& target) {
    return {{"processor", target.name},
            {"isa", target.isa},
            {"bf16_unit", target.bf16_unit},
            {"threads", target.threads}};
}

bool is_of(const Json& entry, const Json& key) {
    for (const auto& [name, value] : key.items())
        if (!entry.contains(name) || entry[name] != value) return false;
    return true;
}

double rate_in(const Json& entry, const char* name) {
    const double rate = entry.at(name).get<double>();
    if (!(rate >= 0 && rate < max_rate)) throw UserError(fmt::format("{} is no rate", name));
    return rate;
}

struct Entry {
    Peaks peaks;
    std::string measured;
};

/// The file's entries of machines, unchecked; empty if it cannot be read, or is damaged.
Json entries_of(const std::filesystem::path& file) {
    try {
        const Json json = parse_strict_json(read_file(file), file.string(), {.bytes = max_file_bytes});
        if (json.is_object() && json.value("version", 0) == file_version && json.at("machines").is_array())
            return json["machines"];
    } catch (const std::exception&) {
        // A lost cache is made again.
    }
    return Json::array();
}

std::optional<Entry> find_entry(const Json& entries, const Json& key) {
    for (const Json& entry : entries) {
        if (!entry.is_object() || !is_of(entry, key)) continue;
        try {
            Entry found;
            found.peaks = {.f32_fma = rate_in(entry, "f32_fma"),
                           .bf16_matrix = rate_in(entry, "bf16_matrix"),
                           .copy = rate_in(entry, "copy")};
            found.measured = entry.at("measured").get<std::string>();
            if (found.peaks.f32_fma > 0 && found.measured.size() == 10) return found;
        } catch (const std::exception&) {
            // Damaged, as above.
        }
    }
    return {};
}

bool rose(const Peaks& now, const Peaks& before) {
    return now.f32_fma > min_rise * before.f32_fma || now.bf16_matrix > min_rise * before.bf16_matrix ||
           now.copy > min_rise * before.copy;
}

}  // namespace

std::filesystem::path peaks_file() {
    const std::filesystem::path folder = cache_folder();
    return folder.empty() ? folder : folder / "peaks.json";
}

Peaks larger_of(const Peaks& a, const Peaks& b) {
    return {.f32_fma = std::max(a.f32_fma, b.f32_fma),
            .bf16_matrix = std::max(a.bf16_matrix, b.bf16_matrix),
            .copy = std::max(a.copy, b.copy)};
}

std::int64_t copy_scratch_bytes(const Target& target) {
    return std::max<std::int64_t>(std::int64_t{64} << 20, 4 * target.l3_bytes);
}

std::string rate_text(double flops_per_second) {
    return flops_per_second < 1e12 ? fmt::format("{:.1f} GFLOP/s", flops_per_second / 1e9)
                                   : fmt::format("{:.2f} TFLOP/s", flops_per_second / 1e12);
}

KeptPeaks::KeptPeaks(Device& device, std::filesystem::path file) : device_(device), file_(std::move(file)) {
    if (file_.empty()) not_kept_ = "neither XDG_CACHE_HOME nor HOME names a folder";
    const auto known = file_.empty() ? std::nullopt : find_entry(entries_of(file_), key_of(device.target()));
    if (!known) {
        measure_well();
        return;
    }
    peaks_ = kept_ = known->peaks;
    measured_ = known->measured;
    raise(arithmetic());
}

void KeptPeaks::measure_well() {
    constexpr int rounds_without_rise = 8;
    const Stopwatch total;
    Peaks best;
    for (int round = 0; round < rounds_without_rise && total.seconds() < 3; ++round) {
        const Peaks now = arithmetic();
        if (rose(now, best)) round = -1;
        best = larger_of(best, now);
    }
    raise(best);
}

Peaks KeptPeaks::arithmetic() {
    const auto scratch = device_.allocate(std::size_t{1} << 20, "measurement of arithmetic");
    Peaks now = device_.measure_peaks(*scratch);
    now.copy = 0;  // so small a copy stays in a cache
    since_measured_.restart();
    return now;
}

void KeptPeaks::raise(const Peaks& seen) {
    peaks_ = larger_of(peaks_, seen);
    if (!rose(peaks_, kept_)) return;
    measured_ = today();
    keep();
    kept_ = peaks_;
}

/// Larger peaks that another run stored meanwhile stay. Two writers at the same moment may lose one machine's
/// entry, which is then measured again.
void KeptPeaks::keep() {
    if (file_.empty()) return;
    const Json key = key_of(device_.target());
    const Json before = entries_of(file_);
    if (const auto known = find_entry(before, key)) peaks_ = larger_of(peaks_, known->peaks);
    Json entry = key;
    entry["f32_fma"] = peaks_.f32_fma;
    entry["bf16_matrix"] = peaks_.bf16_matrix;
    entry["copy"] = peaks_.copy;
    entry["measured"] = measured_;
    Json entries = Json::array({entry});
    for (const Json& other : before)
        if (other.is_object() && !is_of(other, key)) entries.push_back(other);
    const nlohmann::ordered_json json = {
        {"about", "peaks of machines as mantissa measured them, FLOP/s and bytes/s; may be deleted"},
        {"version", file_version},
        {"machines", entries}};
    try {
        std::error_code ignored;
        std::filesystem::create_directories(file_.parent_path(), ignored);
        write_whole(file_, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
        not_kept_.clear();
    } catch (const UserError& error) {
        not_kept_ = error.what();
    }
}

double KeptPeaks::share_of_fastest(double rate) {
    const bool is_due = since_measured_.seconds() > 60;
    if (is_due || (rate > peaks_.fastest() && !out_of_reach_)) {
        raise(arithmetic());
        out_of_reach_ = rate >= 2 * peaks_.fastest();
    }
    const double fastest = peaks_.fastest();
    if (rate > fastest && rate < 2 * fastest) {
        Peaks seen;
        (peaks_.bf16_matrix > peaks_.f32_fma ? seen.bf16_matrix : seen.f32_fma) = rate;
        raise(seen);
    }
    return std::min(1.0, rate / peaks_.fastest());
}

std::string KeptPeaks::text() const {
    const char* const unit = peaks_.bf16_matrix > peaks_.f32_fma ? "BF16" : "FP32";
    return fmt::format("{} {}, measured {}, {}", rate_text(peaks_.fastest()), unit, measured_, place());
}

std::string KeptPeaks::place() const {
    return not_kept_.empty() ? "kept in " + file_.string() : "not kept: " + not_kept_;
}

Peaks known_peaks(Device& device) {
    const std::int64_t bytes = std::min(copy_scratch_bytes(device.target()),
                                        std::max(std::int64_t{64} << 20, device.free_memory() / 4));
    const auto scratch = device.allocate(static_cast<std::size_t>(bytes), "bandwidth measurement");
    Peaks measured = device.measure_peaks(*scratch);
    KeptPeaks kept(device, peaks_file());
    const bool beyond_caches = bytes == copy_scratch_bytes(device.target());
    if (beyond_caches) kept.raise(measured);
    return larger_of(kept.peaks(), measured);
}

}  // namespace mantissa
