// The roofline of a step: for each kernel its arithmetic, bytes and time, what bounds it, and how much of
// that bound it reaches. Williams, Waterman, Patterson, "Roofline", CACM 2009.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

class Batch;
class Trainer;

/// The bound of an operation if it were perfect: arithmetic, memory, or neither, since it is over too soon.
enum class Bound : std::uint8_t { compute, memory, latency };
std::string_view name_of(Bound bound);

/// One launch, in the order of the run.
struct RooflineEntry {
    std::string op, name;
    std::string line = {};  ///< that traced it, as in "model.py:52"; empty: unknown
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

    /// The one with most of the time.
    Bound bound() const;
};

struct Roofline {
    std::string title;  ///< model, sizes and policy, for headings
    Peaks peaks;
    double wall_seconds = 0;  ///< of the whole step
    std::vector<RooflineEntry> entries;

    /// The share of the step's time that launches account for.
    double explained() const;
    /// The share of the step's time in launches of this bound.
    double share_of(Bound bound) const;
};

/// One run of a plan: the seconds of each planned node, and of all.
struct ProfiledStep {
    Profile profile;
    double wall_seconds = 0;
};

/// The median of each time over several runs of one plan, so that one launch that was disturbed tells
/// nothing. At least one run is needed.
ProfiledStep median_step(const std::vector<ProfiledStep>& steps);

/// `profile` holds the seconds of each planned node of one run that took `wall_seconds`.
Roofline roofline(const Plan& plan, const Profile& profile, const Peaks& peaks, double wall_seconds);

/// Runs steps on one batch: two that allocate and warm up, then three to seven, of whose times a launch's is
/// the median; fewer where they are long. `progress` is called with what is being done.
Roofline measure_roofline(Trainer& trainer, const Batch& batch, const Peaks& peaks,
                          const std::function<void(const std::string&)>& progress = {});

/// The longest first.
std::vector<RooflineLine> lines_of(const std::vector<RooflineEntry>& entries);

/// A line for each operation, stage and kernel, the longest first, and one of all: where the time of a run of
/// a plan went. `profile` holds the seconds of each planned node.
std::string profile_table(const Plan& plan, const Profile& profile);

/// A line for each operation, pass and kernel, longest first, and totals. What ran faster than copying memory
/// allows found its data in a cache: that stands in place of a share above 100 %.
std::string roofline_table(const Roofline& roofline);
/// The page of it: kernels under the roof, the step as a flame by pass, scope and operation, and the table.
std::string roofline_section(const Roofline& roofline);
/// A trace with an event for each launch; trace_events.h says what opens it.
std::string roofline_trace(const Roofline& roofline);

}  // namespace mantissa
