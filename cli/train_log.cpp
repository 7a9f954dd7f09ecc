#include "cli/train_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

#include "cli/command_line.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"

namespace mantissa::cli {

namespace {

enum class LogKind : bool { json, table };

/// The step of a line; empty for a line that is not of such a log.
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

/// Throws UserError unless the table to continue has the run's columns: numbers under another column's header
/// would be wrong.
void require_columns(const std::string& path, std::string_view header) {
    std::ifstream file(path, std::ios::binary);
    std::string first;
    std::getline(file, first);
    const bool is_cut_short = file.eof();  // by a full disk
    if (first == header || (is_cut_short && header.starts_with(first))) return;
    throw UserError(fmt::format("--log {}: begins with other columns than this run's, {}; name another file",
                                path, header));
}

/// Removes the lines of this step and later ones from the end of a log, and a line cut short by a full disk,
/// which belongs to no step. Returns the number of removed steps.
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

/// The first line of a table of numbers. A cell is empty if a step lacks its value.
std::string columns_of(const std::string& unit) {
    return fmt::format(
        "step,loss,learning_rate,gradient_norm,applied,ms,{}_per_second,mfu,loss_scale,validation_loss,"
        "validation_top1,validation_top5",
        unit);
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
    const std::string header = columns_of(unit_);
    if (appends && comma_separated_ && std::filesystem::is_regular_file(path, none))
        require_columns(path, header);
    const LogKind kind = comma_separated_ ? LogKind::table : LogKind::json;
    if (const int dropped = appends ? drop_lines_from(path, first_step, kind) : 0; dropped > 0)
        say("{}: {} of step {} and later went, as the run makes them again", path,
            count_text(dropped, "line"), first_step);
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

/// Remarks on a step: the loss scale, if any, and the reason if nothing was updated.
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
    if (!record.non_finite.empty()) step_.push_back({"non_finite", record.non_finite});
}

void TrainLog::validation(const Validation& result) {
    Fields report{{"step", step()}, {"loss", result.loss}, {"batches", result.batches}};
    step_.push_back({"validation_loss", result.loss});
    if (const std::optional<ImageScores>& scores = result.scores) {
        fmt::print("step {:5d} | validation loss {:.6f} | top 1 {:.2f} %{} of {}\n", step(), result.loss,
                   100 * scores->top1_share(),
                   scores->has_top5() ? fmt::format(" | top 5 {:.2f} %", 100 * scores->top5_share()) : "",
                   count_text(scores->images, "image"));
        const Datum top1 = scores->top1_share(),
                    top5 = scores->has_top5() ? Datum(scores->top5_share()) : nullptr;
        step_.insert(step_.end(), {{"validation_top1", top1}, {"validation_top5", top5}});
        report.insert(report.end(), {{"top1", top1}, {"top5", top5}, {"images", scores->images}});
    } else {
        fmt::print("step {:5d} | validation loss {:.6f} over {}\n", step(), result.loss,
                   count_text(result.batches, "batch", "batches"));
    }
    std::fflush(stdout);
    if (keep_ == Keep::steps) validations_.emplace_back(std::move(report));
}

void TrainLog::sample(const std::string& text) {
    std::string line = printable(text);
    for (std::size_t at = 0; (at = line.find('\n', at)) != line.npos; at += 2) line.replace(at, 1, "\\n");
    fmt::print("step {:5d} | sample | {}\n", step(), line);
    std::fflush(stdout);
    step_.push_back({"sample", text});
}

namespace {

/// A table can represent a non-finite number; JSON cannot.
std::string cell_of(const Datum& value) {
    const auto* const number = std::get_if<double>(&value.value);
    if (number && !std::isfinite(*number)) return fmt::format("{}", plain_nan(*number));
    return value.is_known() ? json_line(value) : "";
}

}  // namespace

std::string TrainLog::line() const {
    if (!comma_separated_) return json_line(step_) + "\n";
    std::vector<std::string> cells;
    for (const std::string& column : split_at(',', columns_of(unit_))) {
        const auto field = std::ranges::find(step_, column, &Field::name);
        cells.push_back(field != step_.end() ? cell_of(field->value) : "");
    }
    return fmt::format("{}\n", fmt::join(cells, ","));
}

void TrainLog::end_step() {
    if (keep_ == Keep::steps) steps_.emplace_back(step_);
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
    const auto some = [](Datum::List& list) { return list.empty() ? Datum() : Datum(list); };
    report_.insert(report_.end(), {{"steps", some(steps_)},
                                   {"validation", some(validations_)},
                                   {"peak_resident_bytes", peak_resident_bytes}});
    return json_of("train", report_);
}

}  // namespace mantissa::cli
