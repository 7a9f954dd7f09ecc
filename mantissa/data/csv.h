// Rows of numbers and labels in a CSV file, as examples of a network.
//
//   CsvTable rows("points.csv"), held_out = rows.hold_out(0.2);
//   rows.numbers(rows.columns_but("class"))  [rows, columns] in FP32
//   rows.classes("class").ids                [rows]
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

struct CsvOptions {
    bool header = true;  ///< the first line names the columns; else they are "1", "2", ...
    char separator = ',';
};

/// The classes of the rows of a table.
struct CsvClasses {
    std::vector<std::int32_t> ids;    ///< [rows]: each a place in `labels`
    std::vector<std::string> labels;  ///< of all rows of the file, in order
};

/// Rows of a file: all, or those that hold_out left. Cells may stand in double quotes, with separators, line
/// breaks and doubled quotes within; lines end in LF or CR LF; empty lines count for nothing. Errors are
/// UserError and name file, line and column.
class CsvTable {
  public:
    /// Throws UserError for a file that cannot be read, has no rows, a row of other than the first line's
    /// length, two columns of one name, or a quote that does not end.
    explicit CsvTable(const std::filesystem::path& file, const CsvOptions& options = {});

    std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
    const std::vector<std::string>& columns() const;
    /// All columns but one, in order. Throws UserError where there is none of that name.
    std::vector<std::string> columns_but(const std::string& column) const;

    /// The cells of these columns, [rows, columns]. Throws UserError for a name that no column has, and for a
    /// cell that is no finite number.
    std::vector<float> numbers(const std::vector<std::string>& columns) const;
    /// The cells of a column that are whole numbers. Throws UserError as numbers() does.
    std::vector<std::int32_t> integers(const std::string& column) const;
    /// The cells of a column as classes: 0 is the first of the file's different cells, in the order of their
    /// letters, or of their numbers where each is a whole number.
    CsvClasses classes(const std::string& column) const;

    /// Takes a part of the rows out, drawn by the seed, and returns them, in order. Throws UserError unless
    /// both are left with a row.
    CsvTable hold_out(double part, std::uint64_t seed = 0);

  private:
    struct File;
    CsvTable(std::shared_ptr<const File> file, std::vector<std::size_t> rows);
    std::size_t column_of(const std::string& name) const;

    std::shared_ptr<const File> file_;
    std::vector<std::size_t> rows_;  // of the file's
};

}  // namespace mantissa
