#include "mantissa/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/version.h"

namespace mantissa::inline v0 {

namespace {

using OrderedJson = nlohmann::ordered_json;

void put(OrderedJson& object, const std::string& name, const Datum& datum);

/// The JSON of each kind of value.
struct ToJson {
    OrderedJson operator()(const auto& value) const { return value; }
    OrderedJson operator()(Datum::Absent) const { return nullptr; }
    OrderedJson operator()(double number) const {
        return std::isfinite(number) ? OrderedJson(number) : OrderedJson(nullptr);
    }
    OrderedJson operator()(const Datum::List& list) const {
        OrderedJson array = OrderedJson::array();
        for (const Datum& item : list) array.push_back(std::visit(*this, item.value));
        return array;
    }
    OrderedJson operator()(const std::shared_ptr<const Fields>& fields) const {
        OrderedJson object = OrderedJson::object();
        for (const auto& [name, datum] : *fields) put(object, name, datum);
        return object;
    }
    OrderedJson operator()(const std::shared_ptr<const Table>& table) const {
        OrderedJson array = OrderedJson::array();
        for (const Datum::List& row : table->rows) {
            OrderedJson& object = array.emplace_back(OrderedJson::object());
            for (std::size_t i = 0; i < row.size(); ++i)
                if (!table->columns[i].member.empty()) put(object, table->columns[i].member, row[i]);
        }
        return array;
    }
};

void put(OrderedJson& object, const std::string& name, const Datum& datum) {
    if (std::holds_alternative<Datum::Absent>(datum.value)) return;
    if (const std::size_t dot = name.find('.'); dot != std::string::npos)
        put(object[name.substr(0, dot)], name.substr(dot + 1), datum);
    else
        object[name] = std::visit(ToJson(), datum.value);
}

std::string in_words(const Datum& datum, Column::Format format) {
    const auto text_of = [&](const auto& value) -> std::string {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) return value;
        if constexpr (std::is_arithmetic_v<Value>)
            return format ? format(static_cast<double>(value)) : fmt::format("{}", value);
        if constexpr (!std::is_same_v<Value, Datum::List>) return "-";
        std::vector<std::string> texts;
        if constexpr (std::is_same_v<Value, Datum::List>)
            for (const Datum& item : value) texts.push_back(in_words(item, format));
        return fmt::format("{}", fmt::join(texts, ", "));
    };
    return std::visit(text_of, datum.value);
}

/// A number, with an optional unit or second number, as in "3 of 10".
bool is_number(const std::string& cell) {
    const std::size_t at = cell.find_first_not_of("+-");
    return cell.empty() || cell == "-" ||
           (at <= 1 && cell[at] >= '0' && cell[at] <= '9' && std::ranges::count(cell, ' ') <= 2);
}

/// The displayed width of UTF-8.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Datum::Datum(Fields fields) : value(std::make_shared<const Fields>(std::move(fields))) {}
Datum::Datum(Table table) : value(std::make_shared<const Table>(std::move(table))) {}

std::vector<bool> Grid::numbers() const {
    std::vector<bool> all(headings.size(), true);
    for (const Row& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) all[i] = all[i] && is_number(row[i]);
    return all;
}

std::string Grid::text() const {
    std::vector<std::size_t> widths;
    for (const std::string& heading : headings) widths.push_back(width_of(heading));
    for (const Row& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    const std::vector<bool> right = numbers();
    std::string text;
    const auto add = [&](const Row& row) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string blanks(widths[i] - width_of(row[i]), ' ');
            line += (i == 0 ? "" : "  ") + (right[i] ? blanks + row[i] : row[i] + blanks);
        }
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    add(headings);
    for (const Row& row : rows) add(row);
    return text;
}

Grid Table::grid(Column::In where) const {
    Grid grid;
    for (const Datum::List& row : rows)
        check(row.size() == columns.size(), "a row has a cell for each column");
    grid.rows.resize(rows.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const Column& column = columns[i];
        const bool is_known =
            rows.empty() || std::ranges::any_of(rows, [&](const auto& row) { return row[i].is_known(); });
        if (column.heading.empty() || !is_known || (column.in != Column::In::both && column.in != where))
            continue;
        grid.headings.push_back(column.heading);
        for (std::size_t row = 0; row < rows.size(); ++row)
            grid.rows[row].push_back(in_words(rows[row][i], column.format));
    }
    return grid;
}

std::string json_line(const Datum& value) {
    return std::visit(ToJson(), value.value).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string json_of(const char* command, Fields fields) {
    const Field head[] = {{"command", command}, {"version", version()}, {"commit", commit()}};
    fields.insert(fields.begin(), std::begin(head), std::end(head));
    return std::visit(ToJson(), Datum(std::move(fields)).value)
               .dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
           "\n";
}

}  // namespace mantissa
