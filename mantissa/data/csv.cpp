#include "mantissa/data/own_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

struct CsvTable::File {
    std::string name, text = {};
    std::vector<std::string> columns = {};
    std::vector<std::string_view> cells = {};  // [rows, columns], in `text` or `unquoted`
    std::vector<std::int64_t> lines = {};      // [rows]: line of each row, from 1
    std::deque<std::string> unquoted = {};     // cells with doubled quotes

    std::string_view cell(std::size_t row, std::size_t column) const {
        return cells[row * columns.size() + column];
    }
    std::size_t column_of(const std::string& column) const {
        const auto found = std::ranges::find(columns, column);
        if (found == columns.end())
            throw UserError(fmt::format("{}: there is no column '{}'; there are: {}", name, column,
                                        fmt::join(columns, ", ")));
        return static_cast<std::size_t>(found - columns.begin());
    }
    [[noreturn]] void refuse(std::int64_t line, const std::string& reason) const {
        throw UserError(fmt::format("{}:{}: {}", name, line, reason));
    }
    [[noreturn]] void refuse_cell(std::size_t row, std::size_t column, const char* expected) const {
        const std::string_view found = cell(row, column);
        refuse(lines[row], fmt::format("column '{}' {}; expected {}", columns[column],
                                       found.find_first_not_of(" \t") == found.npos
                                           ? "is empty"
                                           : fmt::format("holds '{}'", printable(found)),
                                       expected));
    }
};

namespace {

std::string_view without_blanks(std::string_view cell) {
    const std::size_t begin = cell.find_first_not_of(" \t");
    if (begin == cell.npos) return {};
    return cell.substr(begin, cell.find_last_not_of(" \t") + 1 - begin);
}

/// Whether the cell is a number and nothing else; `value` gets it.
template <class Number>
bool read_number(std::string_view cell, Number& value) {
    cell = without_blanks(cell);
    if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
    const auto read = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    return !cell.empty() && read.ec == std::errc{} && read.ptr == cell.data() + cell.size();
}

/// Takes rows off a text, one after another.
template <class File>
class RowReader {
  public:
    RowReader(File& file, char separator) : file_(file), rest_(file.text), separator_(separator) {
        if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
    }

    /// Reads the next row, if any; skips empty lines.
    bool next(std::vector<std::string_view>& cells) {
        while (take_end_of_line()) ++line_;
        if (rest_.empty()) return false;
        begins_ = line_;
        cells.clear();
        do cells.push_back(take_cell());
        while (take_separator());
        if (!rest_.empty() && !take_end_of_line())
            file_.refuse(line_, fmt::format("cell {} goes on behind its closing quote", cells.size()));
        ++line_;
        return true;
    }
    std::int64_t line() const { return begins_; }

  private:
    bool take_end_of_line() {
        const std::size_t length = rest_.starts_with("\r\n") ? 2 : rest_.starts_with('\n') ? 1 : 0;
        rest_.remove_prefix(length);
        return length > 0;
    }
    bool take_separator() {
        const bool found = rest_.starts_with(separator_);
        if (found) rest_.remove_prefix(1);
        return found;
    }
    std::string_view take_cell() {
        if (rest_.starts_with('"')) return take_quoted();
        std::size_t end = std::min(rest_.find_first_of(std::string{separator_, '\n'}), rest_.size());
        if (end > 0 && end < rest_.size() && rest_[end] == '\n' && rest_[end - 1] == '\r') --end;
        const std::string_view cell = rest_.substr(0, end);
        rest_.remove_prefix(end);
        return cell;
    }
    std::string_view take_quoted() {
        bool doubled = false;
        for (std::size_t at = 1; at < rest_.size(); ++at) {
            if (rest_[at] == '\n') ++line_;
            if (rest_[at] != '"') continue;
            if (at + 1 < rest_.size() && rest_[at + 1] == '"') {
                doubled = true;
                ++at;
                continue;
            }
            const std::string_view cell = rest_.substr(1, at - 1);
            rest_.remove_prefix(at + 1);
            return doubled ? with_single_quotes(cell) : cell;
        }
        file_.refuse(begins_, "a quoted cell does not end");
    }
    std::string_view with_single_quotes(std::string_view cell) {
        std::string& kept = file_.unquoted.emplace_back();
        for (std::size_t at = 0; at < cell.size(); ++at) {
            kept += cell[at];
            if (cell[at] == '"') ++at;  // the second
        }
        return kept;
    }

    File& file_;
    std::string_view rest_;
    char separator_;
    std::int64_t line_ = 1, begins_ = 1;
};

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path, const CsvOptions& options) {
    auto file = std::make_shared<File>(File{.name = path.string()});
    file->text = read_file(path);
    RowReader reader(*file, options.separator);
    std::vector<std::string_view> cells;
    if (!reader.next(cells)) throw UserError(file->name + ": is empty; expected rows of a CSV file");
    for (const std::string_view name : cells) {
        const std::string column =
            options.header ? std::string(name) : std::to_string(file->columns.size() + 1);
        if (std::ranges::find(file->columns, column) != file->columns.end())
            file->refuse(reader.line(), fmt::format("two columns are named '{}'", printable(column)));
        file->columns.push_back(column);
    }
    if (options.header) cells.clear();
    while (!cells.empty() || reader.next(cells)) {
        if (cells.size() != file->columns.size())
            file->refuse(reader.line(), fmt::format("has {}, the first line {}",
                                                    count_text(cells.size(), "cell"), file->columns.size()));
        file->cells.insert(file->cells.end(), cells.begin(), cells.end());
        file->lines.push_back(reader.line());
        rows_.push_back(rows_.size());
        cells.clear();
    }
    if (rows_.empty()) throw UserError(file->name + ": has no rows below the names of its columns");
    file_ = std::move(file);
}

CsvTable::CsvTable(std::shared_ptr<const File> file, std::vector<std::size_t> rows)
    : file_(std::move(file)), rows_(std::move(rows)) {}

const std::vector<std::string>& CsvTable::columns() const { return file_->columns; }

std::vector<std::string> CsvTable::columns_but(const std::string& column) const {
    std::vector<std::string> others = file_->columns;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(file_->column_of(column)));
    return others;
}

std::vector<float> CsvTable::numbers(const std::vector<std::string>& columns) const {
    std::vector<std::size_t> places;
    for (const std::string& name : columns) places.push_back(file_->column_of(name));
    std::vector<float> values;
    values.reserve(rows_.size() * places.size());
    for (const std::size_t row : rows_)
        for (const std::size_t column : places)
            if (!read_number(file_->cell(row, column), values.emplace_back()) ||
                !std::isfinite(values.back()))
                file_->refuse_cell(row, column, "a finite number");
    return values;
}

CsvClasses CsvTable::classes(const std::string& column) const {
    const std::size_t place = file_->column_of(column);
    std::map<std::string_view, std::int32_t> ids;
    for (std::size_t row = 0; row < file_->lines.size(); ++row) {
        if (file_->cell(row, place).empty()) file_->refuse_cell(row, place, "a class");
        ids.emplace(file_->cell(row, place), 0);
    }
    std::vector<std::pair<std::int64_t, std::string_view>> order;
    bool whole = true;
    for (const auto& [label, id] : ids) whole &= read_number(label, order.emplace_back(0, label).first);
    if (!whole)
        for (auto& each : order) each.first = 0;
    std::ranges::sort(order);
    CsvClasses classes;
    for (const auto& [number, label] : order) {
        ids[label] = static_cast<std::int32_t>(classes.labels.size());
        classes.labels.emplace_back(label);
    }
    for (const std::size_t row : rows_) classes.ids.push_back(ids.at(file_->cell(row, place)));
    return classes;
}

CsvTable CsvTable::hold_out(double part, std::uint64_t seed) {
    if (!(part > 0 && part < 1))
        throw UserError(fmt::format(
            "{}: {} of the rows are to be held out; expected a part above 0 and below 1", file_->name, part));
    ++times_held_out_;
    const auto is_out = [&](std::size_t row) {
        Checksum checksum;
        const auto add = [&](std::uint64_t number) { checksum.add(std::as_bytes(std::span(&number, 1))); };
        add(seed);
        add(times_held_out_);
        for (std::size_t column = 0; column < file_->columns.size(); ++column) {
            const std::string_view cell = file_->cell(row, column);
            add(cell.size());
            checksum.add(std::as_bytes(std::span(cell)));
        }
        return is_held_out(checksum.value(), part);
    };
    std::vector<std::size_t> left, out;
    for (const std::size_t row : rows_) (is_out(row) ? out : left).push_back(row);
    if (out.empty() || left.empty())
        throw UserError(
            fmt::format("{}: {} of {} are to be held out, and that is {}; give another part, or "
                        "another seed",
                        file_->name, part, count_text(rows_.size(), "row"), out.empty() ? "none" : "each"));
    rows_ = std::move(left);
    return {file_, std::move(out)};
}

}  // namespace mantissa
