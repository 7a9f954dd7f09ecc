#include "mantissa/graph/graph.h"
#include "mantissa/train/optimizer_update.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/graph/call.h"
#include "mantissa/passes/analysis/uses.h"

namespace mantissa::inline v0 {

namespace {

void validate(const MuonOptions& options) {
    require_option(options.momentum >= 0 && static_cast<float>(options.momentum) < 1,
                   "Muon's momentum must lie in [0, 1)", options.momentum);
    require_option(is_positive_in_fp32(options.epsilon), "Muon's epsilon must be positive and finite in FP32",
                   options.epsilon);
    require_option(options.iterations >= 1 && options.iterations <= 20,
                   "Muon's iterations must be between 1 and 20", static_cast<double>(options.iterations));
    require_weight_decay(options.weight_decay);
}

/// The nodes that read a value, directly or through operations that only move or round it.
std::set<NodeId> readers(const Graph& graph, const Uses& uses, Value value) {
    std::set<NodeId> found;
    for (const NodeId user : uses.of(value)) {
        if (user < 0) continue;
        const std::string_view op = graph.node(user).op->name;
        if (op == "cast" || op == "reshape" || op == "pad" || op == "stop_gradient")
            found.merge(readers(graph, uses, {user, 0}));
        else
            found.insert(user);
    }
    return found;
}

double rate_factor(const Shape& shape, MuonOptions::Rates rates) {
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    return rates == MuonOptions::Rates::original ? std::sqrt(std::max(1.0, rows / columns))
                                                 : 0.2 * std::sqrt(std::max(rows, columns));
}

Tensor update_matrix(Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step,
                     const MuonOptions& options) {
    const Tensor buffer = optimizer_state(graph, "muon.buffer", parameter);
    const std::vector<Tensor> operands = {parameter.value,    parameter.gradient,  buffer,
                                          step.learning_rate, step.gradient_scale, step.apply};
    const auto updated = call(graph, "muon", operands,
                              {{"epsilon", options.epsilon},
                               {"format", std::string(options.in_bf16 ? "bf16" : "f32")},
                               {"iterations", options.iterations},
                               {"momentum", options.momentum},
                               {"nesterov", options.nesterov},
                               {"rate_factor", rate_factor(parameter.state.type.shape, options.rates)},
                               {"weight_decay", WeightDecay{options.weight_decay}.of(parameter)}});
    graph.add_update(graph.state_of(buffer.value().node), updated[1].value());
    return updated[0];
}

}  // namespace

bool is_hidden_matrix(const Graph& graph, const State& parameter) {
    if (parameter.type.shape.rank() != 2) return false;
    const Uses uses(graph);
    bool multiplies = false;
    for (const NodeId reader : readers(graph, uses, {parameter.node, 0})) {
        const std::string_view op = graph.node(reader).op->name;
        if (op == "embedding" || op == "linear_cross_entropy") return false;
        if (op != "matmul") continue;
        multiplies = true;
        for (const NodeId next : readers(graph, uses, {reader, 0}))
            if (graph.node(next).op->name == "cross_entropy") return false;
    }
    return multiplies;
}

namespace {

/// Whether Muon updates the parameter; AdamW updates all others.
bool is_matrix_of(const MuonOptions& options, const Graph& graph, const State& parameter) {
    if (!options.matrices) return is_hidden_matrix(graph, parameter);
    const auto names_it = [&](const std::string& pattern) { return matches(pattern, parameter.name); };
    if (std::ranges::none_of(*options.matrices, names_it)) return false;
    if (parameter.type.shape.rank() != 2)
        throw UserError(
            fmt::format("Muon is for matrices, and '{}' is {}; leave it out of those that it updates",
                        parameter.name, parameter.type.text()));
    return true;
}

}  // namespace

Optimizer muon(const MuonOptions& options) {
    validate(options);
    const Optimizer others = adamw(options.others);
    Configuration configuration = {
        {"momentum", options.momentum},
        {"nesterov", options.nesterov},
        {"weight_decay", options.weight_decay},
        {"epsilon", options.epsilon},
        {"iterations", options.iterations},
        {"rates", std::string(options.rates == MuonOptions::Rates::original ? "original" : "like adamw")},
        {"format", std::string(options.in_bf16 ? "bf16" : "f32")}};
    if (options.matrices)
        configuration.push_back({"matrices", fmt::format("{}", fmt::join(*options.matrices, " "))});
    for (Setting setting : others.configuration) {
        setting.name = "adamw_" + setting.name;
        configuration.push_back(std::move(setting));
    }
    return {
        .name = "muon",
        .configuration = std::move(configuration),
        .counts_steps = true,
        .update =
            [options, others](Graph& graph, const UpdatedParameter& parameter, const OptimizerStep& step) {
                return is_matrix_of(options, graph, parameter.state)
                           ? update_matrix(graph, parameter, step, options)
                           : others.update(graph, parameter, step);
            },
        // Orthogonalization needs the whole matrix.
        .may_be_cut = [options](const Graph& graph,
                                const State& state) { return !is_matrix_of(options, graph, state); }};
}

}  // namespace mantissa
