// Numbers and labels from the user's CSV files and numpy.save()'s files, as inputs of a network.
//
//   CsvTable rows("points.csv"), held_out = rows.hold_out(0.2)
//   {rows.numbers(rows.columns_but("class")), rows.classes("class").ids}  is a Batch, for Examples
//   {NpyFile("x.npy"), NpyFile("y.npy").numbers<std::int32_t>()}          is another
//   .inputs = {NpyFile("x.npy").input("x"), nn::ids("class")}             are a model's inputs
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
    std::vector<std::int32_t> ids;    ///< [rows]: each an index into `labels`
    std::vector<std::string> labels;  ///< of all rows of the file, in order
};

/// Rows of a file: all, or the rows that hold_out left. Cells may be in double quotes, with separators, line
/// breaks and doubled quotes inside; lines end in LF or CR LF; empty lines are skipped. Any fault, such as
/// rows of different lengths, is a UserError that names file, line and column.
class CsvTable {
  public:
    explicit CsvTable(const std::filesystem::path& file, const CsvOptions& options = {});

    std::int64_t rows() const { return std::ssize(rows_); }
    const std::vector<std::string>& columns() const;
    std::vector<std::string> columns_but(const std::string& column) const;

    /// The cells of these columns, [rows, columns]; they must be finite numbers.
    std::vector<float> numbers(const std::vector<std::string>& columns) const;
    /// The cells of a column as classes, numbered over the file's distinct cells in alphabetical order, or in
    /// numerical order if all are integers.
    CsvClasses classes(const std::string& column) const;

    /// Moves about this part of the rows into the returned table, in order; both keep a row at least. The
    /// choice depends on a row's cells and `seed`: a row stays on its side when others are added, and equal
    /// rows stay together. A second call chooses anew among the remaining rows.
    CsvTable hold_out(double part, std::uint64_t seed = 0);

  private:
    struct File;
    CsvTable(std::shared_ptr<const File> file, std::vector<std::size_t> rows);

    std::shared_ptr<const File> file_;
    std::vector<std::size_t> rows_;  // of the file's
    std::uint64_t times_held_out_ = 0;
};

/// A NumPy array: f32, f64, i32, i64 or u8, in C order, of format 1.0 to 3.0.
class NpyFile {
  public:
    /// Reads the whole file. Throws UserError, naming it, for any other array.
    explicit NpyFile(const std::filesystem::path& file);

    DType dtype() const { return dtype_; }
    const std::vector<std::int64_t>& shape() const { return shape_; }
    operator HostValues() const { return {dtype_, bytes_}; }  // NOLINT: implicit, as of a vector
    /// An input of a model with examples along the array's first axis.
    nn::InputSpec input(std::string name) const;

    /// The numbers as float, double, std::int32_t, std::int64_t or std::uint8_t. Floating targets round.
    /// Throws UserError, naming the element, if an integer target cannot hold it exactly.
    template <class Number>
    std::vector<Number> numbers() const;

  private:
    std::filesystem::path path_;
    DType dtype_ = DType::f32;
    std::vector<std::int64_t> shape_;
    std::vector<std::byte> bytes_;
};

}  // namespace mantissa
