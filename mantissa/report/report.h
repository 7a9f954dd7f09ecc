// A report as data: values, fields and tables, and their output as text, HTML (html.h) and JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/graph/target.h"
#include "mantissa/nn/model.h"

namespace mantissa::inline v0 {

struct Field;
struct Table;
using Fields = std::vector<Field>;

/// A value of a report. If absent, JSON has no member, and people see a hyphen, as for null.
class Datum {
  public:
    using List = std::vector<Datum>;
    struct Absent {};

    Datum() = default;
    Datum(std::nullptr_t) : value(nullptr) {}
    Datum(std::string text) : value(std::move(text)) {}
    Datum(std::string_view text) : value(std::string(text)) {}
    Datum(const char* text) : value(std::string(text)) {}
    Datum(Fields fields);
    Datum(Table table);
    template <class Number>
    requires std::is_arithmetic_v<Number> Datum(Number number) {
        if constexpr (std::is_same_v<Number, bool>)
            value = number;
        else if constexpr (std::is_floating_point_v<Number>)
            value = static_cast<double>(number);
        else if constexpr (std::is_unsigned_v<Number>)
            value = static_cast<std::uint64_t>(number);
        else
            value = static_cast<std::int64_t>(number);
    }
    template <class Item>
    Datum(const std::optional<Item>& item) : Datum(item ? Datum(*item) : Datum(nullptr)) {}
    template <class Item>
    Datum(const std::vector<Item>& items) : value(List(items.begin(), items.end())) {}

    /// Neither absent nor null.
    bool is_known() const { return value.index() > 1; }

    std::variant<Absent, std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, List,
                 std::shared_ptr<const Fields>, std::shared_ptr<const Table>>
        value;
};

/// Null in place of an empty text.
inline Datum or_null(const std::string& text) { return text.empty() ? Datum(nullptr) : Datum(text); }

/// A member of an object. Dots in a name denote nested objects: "machine.isa".
struct Field {
    std::string name;
    Datum value;
};

struct Column {
    using Format = std::string (*)(double);
    enum class In : std::uint8_t { both, text, page };

    /// A column in JSON alone.
    Column(const char* name) : member(name) {}
    Column(std::string name, std::string title, Format as = nullptr, In where = In::both)
        : member(std::move(name)), heading(std::move(title)), format(as), in(where) {}

    std::string member;  ///< of JSON, as a field's name; empty: only for people
    std::string heading = {};
    Format format = nullptr;  ///< of numbers for people; null: all digits
    In in = In::both;
};

/// Cells as people read them. Columns of numbers, cells that begin with a digit or a sign, are right-aligned.
struct Grid {
    using Row = std::vector<std::string>;
    Row headings = {};
    std::vector<Row> rows = {};

    /// By column, whether all cells are numbers; "-" and empty cells are ignored.
    std::vector<bool> numbers() const;
    std::string text() const;
};

/// A table of a report. In JSON it is an array of objects. For people it is a grid of the columns with a
/// heading and at least one known value.
struct Table {
    std::vector<Column> columns = {};
    std::vector<Datum::List> rows = {};

    /// Adds a row, with a cell for each column.
    template <class... Cells>
    void add(Cells&&... cells) {
        rows.push_back({Datum(std::forward<Cells>(cells))...});
    }

    Grid grid(Column::In where) const;
    Grid on_page() const { return grid(Column::In::page); }
    std::string text() const { return grid(Column::In::text).text(); }
};

/// A JSON file: the command, the version of mantissa, and the fields. Numbers that are not finite become
/// null.
std::string json_of(const char* command, Fields fields);
/// A value on a line of JSON, formatted alike.
std::string json_line(const Datum& value);

/// The model of a report, and the size of its step.
struct ReportedModel {
    std::string name;
    std::int64_t parameters = 0;
    std::int64_t batch = 0;              ///< examples of a step
    std::string unit = "examples";       ///< unit of throughput: "tokens", "images"
    std::int64_t units_per_example = 1;  ///< tokens of a sequence
    std::string examples = {};           ///< of a step, in words: "4 x 1024 tokens", "16 images"
};

inline ReportedModel reported(const nn::Model& model, const nn::ModelFacts& facts, std::int64_t batch) {
    return {.name = model.name,
            .parameters = facts.parameters,
            .batch = batch,
            .unit = model.unit,
            .units_per_example = model.units_per_example,
            .examples = nn::batch_text(model, batch)};
}

/// The machine of a report.
inline Fields machine_of(const Target& target) {
    return {{"cpu", target.name},
            {"isa", target.isa},
            {"bf16_unit", target.bf16_unit},
            {"threads", target.threads}};
}

}  // namespace mantissa
