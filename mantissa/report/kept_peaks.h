// The peaks of this machine, kept in a file between runs, so that shares of them (MFU) do not depend on other
// load during a short measurement. The largest measurement counts: no disturbance makes a machine faster.
//
// The file is a cache: if it is missing or cannot be read or written, the peaks are measured and the run
// continues. The key has all that decides the peaks: processor, instruction-set level, BF16 unit, threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "mantissa/base/clock.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// mantissa/peaks.json in $XDG_CACHE_HOME, else in ~/.cache; empty if neither is an absolute path.
std::filesystem::path peaks_file();

/// The larger value of each peak.
Peaks larger_of(const Peaks& a, const Peaks& b);

/// Memory for measuring copies: well beyond any cache, so that the data is in none.
std::int64_t copy_scratch_bytes(const Target& target);

/// "6.61 TFLOP/s", or "487.2 GFLOP/s" below one TFLOP/s.
std::string rate_text(double flops_per_second);

/// The largest peaks of this machine, measured now and earlier. Copying is measured beyond the caches if
/// there is memory for it, else in the available memory.
Peaks known_peaks(Device& device);

class KeptPeaks {
  public:
    /// Takes this machine's peaks from `file` and measures arithmetic again, for a tenth of a second. Without
    /// an entry, measures in rounds until the maximum stops rising, one to three seconds. Stores raised
    /// peaks, unless `file` is empty. Copying needs memory: a caller that has it measures the copy and calls
    /// raise().
    KeptPeaks(Device& device, std::filesystem::path file);

    const Peaks& peaks() const { return peaks_; }

    /// Raises each peak to a larger one seen elsewhere, and stores it.
    void raise(const Peaks& seen);

    /// The share of the fastest peak for a rate in FLOP/s, at most 1: a faster rate is a better measurement
    /// of the peak. Arithmetic is measured again before that, and otherwise once a minute. A rate above twice
    /// the peak is a clock fault: the share is 1, and nothing is stored.
    double share_of_fastest(double rate);

    /// "6.61 TFLOP/s BF16, measured 2026-11-22, kept in FILE".
    std::string text() const;
    /// The place of storage, or why nothing is stored: the end of text().
    std::string place() const;

  private:
    void measure_well();
    Peaks arithmetic();
    void keep();

    Device& device_;
    std::filesystem::path file_;
    Peaks peaks_, kept_;
    std::string measured_;  ///< day of the last rise, as in "2026-11-22"
    std::string not_kept_;  ///< reason; empty if they are stored
    Stopwatch since_measured_;
    bool out_of_reach_ = false;  ///< whether a new measurement for a rate above the peak did not help
};

}  // namespace mantissa
