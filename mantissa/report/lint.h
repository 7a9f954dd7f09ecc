// Ugly sizes of a model: extents of its contractions, convolutions and attention that are no multiple of the
// kernels' block sizes. Reports their places, better sizes, reasons, and the gain on this machine.
//
// Read off the operations of a graph, and so for any model. A rule is a row of data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/policy.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

/// Definition of the gain of a change.
enum class LintGain : std::uint8_t {
    result,     ///< ugly time over nice time: the additional part is padding
    arithmetic  ///< likewise per FLOP: the change makes another model, with more or less work
};

struct LintRule {
    std::string_view size;      ///< the subject: "vocabulary"
    std::int64_t multiple = 0;  ///< 0: Target::extent_multiple
    LintGain gain = LintGain::arithmetic;
    std::string_view why;
};

std::span<const LintRule> lint_rules();

/// Work that shows the effect of a size, with inputs of its own.
struct LintProbe {
    enum class Kind : std::uint8_t { contraction, attention, convolution } kind = Kind::contraction;
    /// Contraction: M, N, K of [M, K] times [N, K] transposed. Attention: B, H, T, D. Convolution: N, H, W,
    /// C, R, S, K of images [N, H, W, C] and filters [R, S, C / groups, K].
    std::vector<std::int64_t> extents = {};
    DType dtype = DType::f32;
    Attributes attributes = {};  ///< of the operation in the model
};

struct LintMeasurement {
    double ugly_milliseconds = 0;  ///< medians, forward and backward
    double nice_milliseconds = 0;
    double work = 1;   ///< FLOPs of the nice size over the ugly one's; 1 for LintGain::result
    double gain = 1;   ///< above 1: the nice size is faster
    double noise = 0;  ///< insignificant distance of a gain from 1, from the spread of turns

    bool gains() const { return gain > 1 + noise; }
};

struct LintFinding {
    const LintRule* rule = nullptr;
    std::int64_t multiple = 0;
    std::int64_t extent = 0, change_to = 0;
    std::vector<std::string> where;  ///< parameters, or scopes of attention
    std::string line = {};           ///< of the first one's trace, as in "model.py:52"; empty: unknown
    std::string note;                ///< side effect of the change; may be empty
    LintProbe ugly, nice;
    std::optional<LintMeasurement> measured = {};

    /// Whether a change gains nothing: measured, and within the noise.
    bool harmless() const { return measured && !measured->gains(); }
};

/// Sizes in a model's forward pass that break a rule, in the order of the rules. Attention counts if it is
/// one operation (passes/attention/match_attention.h). `batch`: examples of the graph; 0: the first extent of
/// its first input.
std::vector<LintFinding> lint(const Graph& graph, const Target& target, std::int64_t batch = 0);

/// Times the work of a finding at both sizes in turns. Contractions are limited to 512 rows, convolutions to
/// 16,384 pixels or one image, since more would only repeat them. The gain is the median over the turns.
/// Throws UserError if memory does not suffice.
LintMeasurement measure_lint(Device& device, const LintFinding& finding, int repeats);

/// The measurement from the turns' times, in milliseconds. `arithmetic`: FLOPs of the nice size over the ugly
/// one's for LintGain::arithmetic, else 1.
LintMeasurement measurement_of(const std::vector<double>& ugly, const std::vector<double>& nice,
                               double arithmetic);

struct LintReport {
    ReportedModel model;
    std::string policy;
    Target target = {};
    std::vector<LintFinding> findings;
};

struct LintOptions {
    Policy policy = {};
    std::int64_t batch = 4;
    int repeats = 5;                                        ///< measurements of each size; 0: none
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
};

/// Finds the sizes of a model, and measures them.
LintReport run_lint(Device& device, const nn::Model& model, const LintOptions& options = {});

/// For people.
std::string lint_table(const LintReport& report);

/// For machines: docs/json.md describes every member.
std::string lint_json(const LintReport& report);

/// A self-contained page. `command`: the command line.
std::string lint_html(const LintReport& report, const std::string& command);

}  // namespace mantissa
