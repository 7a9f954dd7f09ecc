// The choice of a library's algorithm for a product. It is the quickest of the offered ones that round as
// they should, timed once on the device and kept in a file, where its times mean something; else the
// library's best. A choice never changes while the device lives.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0::on_cuda {

/// Algorithms by a line of text, which names the product, the device and the version of the library.
using TimedAlgorithms = std::map<std::string, cuda::MatmulAlgorithm>;

/// The timed algorithm of cuBLASLt for each product, in a file from one run to the next. A damaged file, or
/// one that cannot be read, is as if it were not there, and made again.
class AlgorithmFile {
  public:
    /// Nothing is kept where `file` is empty.
    explicit AlgorithmFile(std::filesystem::path file);

    std::optional<cuda::MatmulAlgorithm> find(const std::string& product) const;
    /// Adds them, in place of earlier entries, or not, where the file cannot be written. Entries that another
    /// run has added meanwhile stay. If two write at the same moment, the entries of one may be lost; they
    /// are then timed again.
    void keep(const TimedAlgorithms& timed);

  private:
    std::filesystem::path file_;
    TimedAlgorithms known_;
};

struct Context;

/// A number that a product is to store.
struct ExpectedNumber {
    std::size_t output = 0;  ///< number among its outputs
    std::int64_t element = 0;
    double value = 0, allowed = 0;  ///< allowed: the largest error
};

/// A product whose algorithm is taken, or will be when kernels are finished.
struct ChosenAlgorithm {
    std::string product;                         ///< as a line of text
    std::vector<cuda::MatmulHeuristic> offered;  ///< the library's best first
    /// The data of the timing: operands of these types, filled with numbers, and outputs.
    std::vector<Type> inputs = {}, outputs = {};
    std::function<cuda::BlasStatus(const cuda::MatmulHeuristic&, const Operands&)> multiply = {};
    std::function<std::vector<ExpectedNumber>()> expected = {};  ///< of that data

    const cuda::MatmulHeuristic* taken = nullptr;  ///< one of `offered`
    bool without_memory = false;                   ///< to time it in: the library's best was taken
    std::string refused = {};                      ///< algorithms, and why; empty if there are none

    /// Bytes: of the algorithm taken; before that, the most of all offered.
    std::size_t workspace() const;
    /// "algorithm 0123456789abcdef of cuBLASLt for " and the product; or that it is not yet timed.
    std::string text() const;
};

class ProductAlgorithms {
  public:
    enum class Choose { the_first, the_quickest };

    /// `where`: device and version of the library; the file tells their algorithms apart by it.
    ProductAlgorithms(Choose choose, std::string where, AlgorithmFile file)
        : choose_(choose), where_(std::move(where)), file_(std::move(file)) {}

    /// How many algorithms to ask the library for.
    int asked() const { return choose_ == Choose::the_first ? 1 : max_offered; }
    /// Takes an offered algorithm if the best is known; else `finish` will, if anybody still wants it then.
    void add(const std::shared_ptr<ChosenAlgorithm>& chosen);
    /// Times the products that are still wanted, and keeps the algorithms taken. Throws UserError where the
    /// device fails, or where every algorithm of a product stores wrong numbers.
    void finish(const Context& context);

  private:
    // The library offers algorithms in the order of the times that it expects.
    static constexpr int max_offered = 8;

    bool take_if_known(ChosenAlgorithm& chosen) const;

    Choose choose_;
    std::string where_;
    AlgorithmFile file_;
    struct Taken {
        cuda::MatmulAlgorithm algorithm;
        bool without_memory = false;
    };
    std::map<std::string, Taken> taken_;  ///< by product
    std::vector<std::weak_ptr<ChosenAlgorithm>> open_;
};

}  // namespace mantissa::on_cuda
