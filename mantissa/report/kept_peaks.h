// The peaks of this machine, kept in a file from run to run, so that shares of them (MFU) do not follow what
// else ran during a short measurement. The largest seen counts: nothing makes a machine faster than it is.
//
// The file is a cache: without it, or where it cannot be read or written, the peaks are measured and the run
// goes on. What decides the peaks is their key: processor, instruction-set level, BF16 unit, threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "mantissa/base/clock.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// mantissa/peaks.json in $XDG_CACHE_HOME, else in ~/.cache; empty where neither is an absolute path.
std::filesystem::path peaks_file();

/// Each the larger of two.
Peaks larger_of(const Peaks& a, const Peaks& b);

/// Memory in which copying is measured: well beyond any cache, so that what is copied does not lie in one.
std::int64_t copy_scratch_bytes(const Target& target);

/// "6.61 TFLOP/s", or "487.2 GFLOP/s" below one TFLOP/s.
std::string rate_text(double flops_per_second);

/// The largest peaks of this machine, measured now and kept from earlier. Copying where there is memory for
/// it beyond the caches, else in what there is.
Peaks known_peaks(Device& device);

class KeptPeaks {
  public:
    /// Takes this machine's peaks from `file` and measures arithmetic once more, a tenth of a second. Where
    /// `file` has none, measures until the largest of several rounds rises no more, one to three seconds.
    /// Keeps the peaks that rose. An empty `file` keeps nothing. Copying takes memory: a caller that has the
    /// memory measures the copy and calls raise().
    KeptPeaks(Device& device, std::filesystem::path file);

    const Peaks& peaks() const { return peaks_; }

    /// Raises each peak to one seen elsewhere, if that is larger, and keeps it.
    void raise(const Peaks& seen);

    /// The share of the fastest peak that a rate in FLOP/s is: at most 1, since what ran faster than the peak
    /// is a better measurement of it. Before it is taken for one, and else once a minute, arithmetic is
    /// measured again. What ran at more than twice the peak is a fault of a clock: 1, and nothing is kept.
    double share_of_fastest(double rate);

    /// "6.61 TFLOP/s BF16, measured 2026-11-22, kept in FILE".
    std::string text() const;
    /// The place where they are kept, or why they are not: the end of text().
    std::string place() const;

  private:
    void measure_well();
    Peaks arithmetic();
    void keep();

    Device& device_;
    std::filesystem::path file_;
    Peaks peaks_, kept_;
    std::string measured_;  ///< the day of the last rise, as in "2026-11-22"
    std::string not_kept_;  ///< why; empty if they are
    Stopwatch since_measured_;
    bool out_of_reach_ = false;  ///< whether measuring again for a rate above the peak did not help
};

}  // namespace mantissa
