// The algorithm of cuBLASLt that multiplies what, as it was once timed, in a file from one run to the next.
// What cannot be read or is damaged is as if it were not there, and made again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "mantissa/device/cuda/cublaslt.h"

namespace mantissa::inline v0::on_cuda {

/// Algorithms by a line of text, which says what is multiplied, where, and by which version of the library.
using TimedAlgorithms = std::map<std::string, cuda::MatmulAlgorithm>;

class AlgorithmFile {
  public:
    /// Nothing is kept where `file` is empty.
    explicit AlgorithmFile(std::filesystem::path file);

    std::optional<cuda::MatmulAlgorithm> find(const std::string& product) const;
    /// Adds them, in place of what was found for them, or not, where the file cannot be written. What another
    /// run has added meanwhile stays as it is; of two that write at the same moment one's may be lost, which
    /// are then timed again.
    void keep(const TimedAlgorithms& timed);

  private:
    std::filesystem::path file_;
    TimedAlgorithms known_;
};

}  // namespace mantissa::on_cuda
