// The roofline of a step: arithmetic, bytes and time of each kernel, its bound, and the share of the bound
// that it reaches. Williams, Waterman, Patterson, "Roofline", CACM 2009.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

class Batch;
class Trainer;

/// The bound of an ideal kernel: arithmetic, memory, or neither, since it is too short.
enum class Bound : std::uint8_t { compute, memory, latency };
std::string_view name_of(Bound bound);

/// A launch, in the order of the run.
struct RooflineEntry {
    std::string op, name;
    std::string line = {};  ///< of the trace, as in "model.py:52"; empty: unknown
    std::string pass, kernel;
    double start = 0;    ///< seconds from the first launch of the step
    double seconds = 0;  ///< of this launch
    Cost cost = {};
    Bound bound = Bound::latency;
    double roof_seconds =
        0;  ///< the larger of arithmetic over the unit's peak and bytes over the copy bandwidth
};

/// Launches of one operation, pass and kernel.
struct RooflineLine {
    std::string op, pass, kernel;
    int launches = 0;
    double seconds = 0, roof_seconds = 0;
    Cost cost;
    std::map<Bound, double> bounds;  ///< seconds of launches by their bound

    /// The bound with most of the time.
    Bound bound() const;
};

struct Roofline {
    std::string title;  ///< model, sizes and policy, for headings
    Peaks peaks;
    double wall_seconds = 0;  ///< of the whole step
    std::vector<RooflineEntry> entries;

    /// The share of the step's time spent in launches.
    double explained() const;
    /// The share of the step's time in launches with this bound.
    double share_of(Bound bound) const;
};

/// A run of a plan: the seconds of each planned node, and in total.
struct ProfiledStep {
    Profile profile;
    double wall_seconds = 0;
};

/// The median of each time over several runs of one plan, so that a disturbed launch has no effect. At least
/// one run is needed.
ProfiledStep median_step(const std::vector<ProfiledStep>& steps);

/// `profile` has the seconds of each planned node of a run of `wall_seconds`.
Roofline roofline(const Plan& plan, const Profile& profile, const Peaks& peaks, double wall_seconds);

/// Runs steps on one batch: two for allocation and warm-up, then three to seven, fewer if they are long; a
/// launch's time is their median. `progress` is called with the current activity.
Roofline measure_roofline(Trainer& trainer, const Batch& batch, const Peaks& peaks,
                          const std::function<void(const std::string&)>& progress = {});

/// The longest first.
std::vector<RooflineLine> lines_of(const std::vector<RooflineEntry>& entries);

/// A line for each operation, stage and kernel, longest first, and a total: the time of a plan's run by
/// kernel. `profile` has the seconds of each planned node.
std::string profile_table(const Plan& plan, const Profile& profile);

/// A line for each operation, pass and kernel, longest first, and totals. A kernel faster than copying memory
/// found its data in a cache; the table says so instead of a share above 100 %.
std::string roofline_table(const Roofline& roofline);
/// The page's section: kernels under the roof, the step as a flame by pass, scope and operation, the table.
std::string roofline_section(const Roofline& roofline);
/// A trace with an event for each launch; trace_events.h names its viewers.
std::string roofline_trace(const Roofline& roofline);

}  // namespace mantissa
