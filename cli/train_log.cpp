#include "cli/train_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/count_text.h"
#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"

namespace mantissa::cli {

namespace {

/// A prompt may hold bytes that are no UTF-8, which JSON cannot.
constexpr auto replace = nlohmann::json::error_handler_t::replace;

}  // namespace

TrainLog::TrainLog(const nn::Model& model, const std::string& policy, Keep keep)
    : keep_(keep),
      unit_(model.unit),
      report_({{"command", "train"}, {"model", model.name}, {"policy", policy}}) {}

namespace {

enum class LogKind : bool { json, table };

/// The step of a line; empty for a line that is not one of such a log.
std::optional<std::int64_t> step_of(std::string_view line, LogKind kind) {
    constexpr std::string_view member = "{\"step\":";
    if (kind == LogKind::json) {
        if (!line.starts_with(member)) return {};
        line.remove_prefix(member.size());
    }
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    if (error != std::errc{} || end == line.data() + line.size() || *end != ',') return {};
    return step;
}

/// Throws UserError unless the table that a run goes on with has the run's columns. Numbers below the header
/// of another column would be wrong.
void require_columns(const std::string& path, std::string_view header) {
    std::ifstream file(path, std::ios::binary);
    std::string first;
    std::getline(file, first);
    const bool is_cut_short = file.eof();  // by a full disk
    if (first == header || (is_cut_short && header.starts_with(first))) return;
    throw UserError(fmt::format("--log {}: begins with other columns than this run's, {}; name another file",
                                path, header));
}

/// Takes the lines of this step and of later ones off the end of a log, and one that a full disk cut short,
/// which belongs to no step. Returns how many steps went.
int drop_lines_from(const std::string& path, std::int64_t first_step, LogKind kind) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) return 0;
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::size_t last_break = text.rfind('\n');
    std::size_t end = last_break == std::string::npos ? 0 : last_break + 1;
    int dropped = 0;
    while (end > 0) {
        const std::size_t before = end < 2 ? std::string::npos : text.rfind('\n', end - 2);
        const std::size_t begin = before == std::string::npos ? 0 : before + 1;
        const auto step = step_of(std::string_view(text).substr(begin, end - begin), kind);
        if (!step || *step < first_step) break;
        end = begin;
        ++dropped;
    }
    if (end < text.size()) std::filesystem::resize_file(path, end, none);
    return dropped;
}

}  // namespace

namespace {

/// A step's cells in a table of numbers; where a step has none of it, the cell is empty.
std::vector<std::string> columns(const std::string& unit) {
    return {"step",
            "loss",
            "learning_rate",
            "gradient_norm",
            "applied",
            "ms",
            unit + "_per_second",
            "mfu",
            "loss_scale",
            "validation_loss",
            "validation_top1",
            "validation_top5"};
}

}  // namespace

bool holds_lines(const std::string& path) {
    std::error_code none;
    return std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0;
}

void TrainLog::open(const std::string& path, std::int64_t first_step) {
    comma_separated_ = path.ends_with(".csv");
    if (path == "-") {
        path_ = "standard output";
        return file_.reset(open_kept_standard_output());
    }
    path_ = path;
    std::error_code none;
    if (std::filesystem::is_regular_file(path, none) || !std::filesystem::exists(path, none))
        lock_.emplace(path + ".lock", path);
    const bool appends = first_step > 0;
    const std::string header = fmt::format("{}", fmt::join(columns(unit_), ","));
    if (appends && comma_separated_ && std::filesystem::is_regular_file(path, none))
        require_columns(path, header);
    const LogKind kind = comma_separated_ ? LogKind::table : LogKind::json;
    if (const int dropped = appends ? drop_lines_from(path, first_step, kind) : 0; dropped > 0)
        print_error(fmt::format("mantissa: {}: {} of step {} and later went, as the run makes them again\n",
                                path, count_text(dropped, "line"), first_step));
    if (!appends && holds_lines(path)) {
        std::filesystem::rename(path, AtomicDirectory::previous_of(path), none);
        if (none)
            throw UserError(fmt::format("{}: the lines of another run cannot be kept as {}: {}", path,
                                        AtomicDirectory::previous_of(path).string(), none.message()));
    }
    const bool goes_on = appends && holds_lines(path);
    file_.reset(std::fopen(path.c_str(), appends ? "a" : "w"));
    if (!file_) throw UserError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    if (comma_separated_ && !goes_on) write(header + "\n");
}

namespace {

/// Remarks on a step: the loss scale where there is one, and why it changed nothing.
std::string remarks(const StepRecord& record) {
    std::string text;
    if (record.loss_scale.scale != 1 || record.loss_scale.skipped > 0)
        text = fmt::format(" | loss scale {:g}", record.loss_scale.scale);
    if (record.result.applied) return text;
    text += " | not finite, so skipped";
    return record.non_finite.empty() ? text : text + ":\n    " + record.non_finite;
}

}  // namespace

void TrainLog::step(const StepRecord& record, Print print) {
    const StepResult& result = record.result;
    if (print == Print::yes)
        fmt::print(
            "step {:5d} | loss {:.6f} | lr {:.4e} | norm {:.4f} | {:.2f} ms | {:.0f} {}/s | MFU {:.1f} %{}\n",
            record.step, result.loss, record.learning_rate, result.gradient_norm, result.seconds * 1e3,
            record.units_per_second, unit_, 100 * record.mfu, remarks(record));
    if (std::fflush(stdout) != 0)
        throw UserError(fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
    step_ = {{"step", record.step},
             {"loss", result.loss},
             {"learning_rate", record.learning_rate},
             {"gradient_norm", result.gradient_norm},
             {"applied", result.applied},
             {"ms", result.seconds * 1e3},
             {unit_ + "_per_second", record.units_per_second},
             {"mfu", record.mfu},
             {"loss_scale", record.loss_scale.scale}};
    if (!record.non_finite.empty()) step_["non_finite"] = record.non_finite;
}

void TrainLog::validation(const Validation& result) {
    const auto step = step_["step"].get<std::int64_t>();
    nlohmann::ordered_json report = {{"step", step}, {"loss", result.loss}, {"batches", result.batches}};
    step_["validation_loss"] = result.loss;
    if (const std::optional<ImageScores>& scores = result.scores) {
        fmt::print("step {:5d} | validation loss {:.6f} | top 1 {:.2f} %{} of {}\n", step, result.loss,
                   100 * scores->top1_share(),
                   scores->has_top5() ? fmt::format(" | top 5 {:.2f} %", 100 * scores->top5_share()) : "",
                   count_text(scores->images, "image"));
        step_["validation_top1"] = report["top1"] = scores->top1_share();
        step_["validation_top5"] = report["top5"] = scores->has_top5()
                                                        ? nlohmann::ordered_json(scores->top5_share())
                                                        : nlohmann::ordered_json(nullptr);
        report["images"] = scores->images;
    } else {
        fmt::print("step {:5d} | validation loss {:.6f} over {}\n", step, result.loss,
                   count_text(result.batches, "batch", "batches"));
    }
    std::fflush(stdout);
    if (keep_ == Keep::steps) report_["validation"].push_back(report);
}

void TrainLog::sample(const std::string& text) {
    std::string line = printable(text);
    for (std::size_t at = 0; (at = line.find('\n', at)) != line.npos; at += 2) line.replace(at, 1, "\\n");
    fmt::print("step {:5d} | sample | {}\n", step_["step"].get<std::int64_t>(), line);
    std::fflush(stdout);
    step_["sample"] = text;
}

namespace {

/// JSON has no word for what is no number, and a table has.
std::string cell_of(const nlohmann::ordered_json& value) {
    if (value.is_null()) return "";
    if (!value.is_number_float()) return value.dump();
    const auto number = value.get<double>();
    return std::isfinite(number) ? value.dump() : fmt::format("{}", plain_nan(number));
}

}  // namespace

std::string TrainLog::line() const {
    if (!comma_separated_) return step_.dump(-1, ' ', false, replace) + "\n";
    std::vector<std::string> cells;
    for (const std::string& column : columns(unit_))
        cells.push_back(step_.contains(column) ? cell_of(step_[column]) : "");
    return fmt::format("{}\n", fmt::join(cells, ","));
}

void TrainLog::end_step() {
    if (keep_ == Keep::steps) report_["steps"].push_back(step_);
    if (file_) write(line());
}

void TrainLog::write(const std::string& line) {
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0)
        return;
    const int why = errno;
    file_.reset();
    throw UserError(fmt::format("{}: cannot be written: {}", path_, std::strerror(why)));
}

std::string TrainLog::json(std::int64_t peak_resident_bytes) {
    report_["peak_resident_bytes"] = peak_resident_bytes;
    return report_.dump(2, ' ', false, replace) + "\n";
}

}  // namespace mantissa::cli
