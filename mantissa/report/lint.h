// Ugly sizes of a model: extents of its contractions, convolutions and attention that leave a rest in the
// blocks which kernels work in; where they are, what to make of them and why, and what that gains on this
// machine.
//
// Read off the operations of a graph, so of any model. A rule is a row of data.
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

/// The way that the gain of a change is counted.
enum class LintGain : std::uint8_t {
    result,     ///< the ugly time over the nice one: what was added is padding
    arithmetic  ///< the same for each FLOP: the change makes another model, with more work or less
};

struct LintRule {
    std::string_view size;      ///< what it is about: "vocabulary"
    std::int64_t multiple = 0;  ///< 0: Target::extent_multiple
    LintGain gain = LintGain::arithmetic;
    std::string_view why;
};

std::span<const LintRule> lint_rules();

/// Work in which a size shows, made with inputs of its own.
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
    double work = 1;   ///< FLOPs of the nice size over those of the ugly one; 1 where gain is of the result
    double gain = 1;   ///< above 1: the nice size is faster
    double noise = 0;  ///< how far from 1 a gain may lie that is none, by how much the turns differ

    bool gains() const { return gain > 1 + noise; }
};

struct LintFinding {
    const LintRule* rule = nullptr;
    std::int64_t multiple = 0;
    std::int64_t extent = 0, change_to = 0;
    std::vector<std::string> where;  ///< parameters, or scopes of attention
    std::string line = {};           ///< that traced the first of them, as in "model.py:52"; empty: unknown
    std::string note;                ///< what else the change means; may be empty
    LintProbe ugly, nice;
    std::optional<LintMeasurement> measured = {};

    /// Whether nothing is gained by changing it: measured, and within the noise.
    bool harmless() const { return measured && !measured->gains(); }
};

/// Sizes in the forward pass of a model that break a rule, in the order of the rules. Attention counts where
/// it is one operation (passes/attention/match_attention.h). `batch`: examples of the graph; 0: as many as
/// the first extent of its first input.
std::vector<LintFinding> lint(const Graph& graph, const Target& target, std::int64_t batch = 0);

/// Times the work of a finding at both sizes in turns. Contractions with at most 512 rows, and convolutions
/// of at most 16,384 pixels or one image, since more repeat what these show. The gain is the median over the
/// turns. Throws UserError if there is not enough memory.
LintMeasurement measure_lint(Device& device, const LintFinding& finding, int repeats);

/// The measurement that such times of the turns make, in milliseconds; `arithmetic`: the FLOPs of the nice
/// size over those of the ugly one, where the gain is for the same arithmetic, else 1.
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
    int repeats = 5;                                        ///< times that each size is measured; 0: none is
    std::function<void(const std::string&)> progress = {};  ///< called with what is being done
};

/// Finds the sizes of a model, and measures them.
LintReport run_lint(Device& device, const nn::Model& model, const LintOptions& options = {});

/// For people.
std::string lint_table(const LintReport& report);

/// For machines: docs/json.md describes every member.
std::string lint_json(const LintReport& report);

/// A page that needs no other file. `command`: what was typed.
std::string lint_html(const LintReport& report, const std::string& command);

}  // namespace mantissa
