// Numbers and labels of one's own, from CSV files and from what numpy.save() wrote, as inputs of a network.
//
//   CsvTable rows("points.csv"), held_out = rows.hold_out(0.2)
//   {rows.numbers(rows.columns_but("class")), rows.classes("class").ids}  is a Batch, for Examples
//   {NpyFile("x.npy"), NpyFile("y.npy").numbers<std::int32_t>()}          is another
//   .inputs = {NpyFile("x.npy").input("x"), nn::ids("class")}             is what a model takes of these
#pragma once

#include <filesystem>
#include <memory>

#include "mantissa/data/batch.h"

namespace mantissa::inline v0 {

struct CsvOptions {
    bool header = true;  ///< the first line names the columns; else they are "1", "2", ...
    char separator = ',';
};

struct CsvClasses {
    std::vector<std::int32_t> ids;    ///< [rows]: each a place in `labels`
    std::vector<std::string> labels;  ///< of all rows of the file, in order
};

/// Rows of a file: all, or those that hold_out left. Cells may stand in double quotes, with separators, line
/// breaks and doubled quotes within; lines end in LF or CR LF; empty lines count for nothing. Whatever is
/// wrong, as rows of other lengths, is a UserError that names file, line and column.
class CsvTable {
  public:
    explicit CsvTable(const std::filesystem::path& file, const CsvOptions& options = {});

    std::int64_t rows() const { return std::ssize(rows_); }
    const std::vector<std::string>& columns() const;
    std::vector<std::string> columns_but(const std::string& column) const;

    /// The cells of these columns, [rows, columns], which must be finite numbers.
    std::vector<float> numbers(const std::vector<std::string>& columns) const;
    /// The cells of a column as classes: 0 is the first of the file's different cells, in the order of their
    /// letters, or of their numbers where each is a whole number.
    CsvClasses classes(const std::string& column) const;

    /// Takes about this part of the rows out and returns them, in order; a row must be left in both. Which
    /// they are follows from the cells of each row, and `seed`: a row stays on its side whatever other rows
    /// are added, and equal rows are on one side. Held out once more, the rows that are left are chosen anew.
    CsvTable hold_out(double part, std::uint64_t seed = 0);

  private:
    struct File;
    CsvTable(std::shared_ptr<const File> file, std::vector<std::size_t> rows);

    std::shared_ptr<const File> file_;
    std::vector<std::size_t> rows_;  // of the file's
    std::uint64_t times_held_out_ = 0;
};

/// An array of NumPy's: f32, f64, i32, i64 or u8, in C order, of format 1.0 to 3.0.
class NpyFile {
  public:
    /// Reads the whole file. Throws UserError, naming it, for any other.
    explicit NpyFile(const std::filesystem::path& file);

    DType dtype() const { return dtype_; }
    const std::vector<std::int64_t>& shape() const { return shape_; }
    operator HostValues() const { return {dtype_, bytes_}; }  // NOLINT: implicit, as of a vector
    /// The input of a model of which the first axis has the examples.
    nn::InputSpec input(std::string name) const;

    /// As float, double, std::int32_t, std::int64_t or std::uint8_t. Floating ones are rounded; throws
    /// UserError, naming the element, where whole ones cannot be had.
    template <class Number>
    std::vector<Number> numbers() const;

  private:
    std::filesystem::path path_;
    DType dtype_ = DType::f32;
    std::vector<std::int64_t> shape_;
    std::vector<std::byte> bytes_;
};

}  // namespace mantissa
