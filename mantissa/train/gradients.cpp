#include "mantissa/train/gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

struct NamedGradient {
    std::string parameter;
    Value gradient;
};

/// The first operation of the update reads every gradient, for their norm.
NodeId norm_of(const Graph& graph) {
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (graph.node(id).op->name == "global_norm") return id;
        if (graph.node(id).op->name == "norm_of_parts")
            throw UsageError(
                "gradients are shown whole, and a rank with sharded states has parts of them: give `states` "
                "whole");
    }
    throw InternalError("the graph updates no parameters: it has no norm of all gradients");
}

/// Operands of a parameter's part of `joined_updates` (passes/join_updates.h), which has no scope of its own;
/// none if the parameter is updated alone.
std::span<const Value> operands_of_part(const Graph& graph, const std::string& parameter) {
    for (const Update& update : graph.updates()) {
        const Node& node = graph.node(update.value.node);
        if (node.op->name != "joined_updates" || graph.state(update.state).name != parameter) continue;
        const auto parts = static_cast<std::size_t>(node.attributes.integer("parts"));
        const std::size_t part =
            static_cast<std::size_t>(update.value.output) / (node.outputs.size() / parts);
        const std::size_t operands = node.inputs.size() / parts;
        return std::span(node.inputs).subspan(part * operands, operands);
    }
    return {};
}

/// The gradient that a parameter's update reads. Two parameters may share a gradient.
const Value* gradient_of(const Graph& graph, const std::string& parameter,
                         const std::vector<Value>& gradients) {
    const auto among = [&](std::span<const Value> operands) {
        const auto found =
            std::find_first_of(gradients.begin(), gradients.end(), operands.begin(), operands.end());
        return found == gradients.end() ? nullptr : &*found;
    };
    if (const Value* found = among(operands_of_part(graph, parameter))) return found;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.origin.stage != Stage::update || node.origin.scope != parameter) continue;
        if (const Value* found = among(node.inputs)) return found;
    }
    return nullptr;
}

std::vector<NamedGradient> gradients_of(const Graph& graph, const std::vector<Value>& gradients) {
    std::vector<NamedGradient> named;
    for (const State& state : graph.states()) {
        if (state.kind != State::Kind::parameter) continue;
        if (const Value* found = gradient_of(graph, state.name, gradients))
            named.push_back({state.name, *found});
    }
    return named;
}

}  // namespace

double run_showing_gradients(Execution& last, ShowGradient show, Profile* profile) {
    const Graph& graph = last.plan().graph();
    Device& device = last.plan().device();
    const NodeId norm = norm_of(graph);
    const std::vector<NamedGradient> gradients = gradients_of(graph, graph.node(norm).inputs);
    double shown = 0;
    std::unique_ptr<Event> begun;
    if (profile) profile->clear();
    const auto before = [&](NodeId id) {
        if (id == norm) {
            const Stopwatch watch;
            for (const NamedGradient& each : gradients) show(each.parameter, each.gradient);
            shown = watch.seconds();
        }
        begun = device.record();
        return true;
    };
    const auto after = [&](NodeId) {
        if (!profile) return true;
        const std::unique_ptr<Event> ended = device.record();
        device.wait(*ended);
        profile->push_back(device.seconds_between(*begun, *ended));
        return true;
    };
    last.run_while(before, after);
    return shown;
}

struct Gradients::Places {
    Execution& last;
    NodeId stopped_at;
    float loss_scale;
    std::map<std::string, Value> values = {};
};

Gradients::Gradients(Execution& last, float loss_scale)
    : places_(new Places{last, norm_of(last.plan().graph()), loss_scale}) {
    const Graph& graph = last.plan().graph();
    const NodeId stopped_at = places_->stopped_at;
    for (NamedGradient& each : gradients_of(graph, graph.node(stopped_at).inputs)) {
        names_.push_back(each.parameter);
        places_->values.emplace(std::move(each.parameter), each.gradient);
    }
    last.run_while([&](NodeId id) { return id != stopped_at; }, [](NodeId) { return true; });
    loss_ = last.read_scalar("loss");
}

Gradients::~Gradients() = default;
Gradients::Gradients(Gradients&&) noexcept = default;
Gradients& Gradients::operator=(Gradients&&) noexcept = default;

Gradients::Place Gradients::place(const std::string& parameter) const {
    const auto found = places_->values.find(parameter);
    if (found == places_->values.end())
        throw UserError(fmt::format("'{}' is no parameter that is trained; there are {}", parameter,
                                    fmt::join(names_, ", ")));
    const Execution& last = places_->last;
    return {last.plan().graph().type(found->second), last.place_of(found->second), places_->loss_scale};
}

std::vector<float> Gradients::read(const std::string& parameter) const {
    const Place at = place(parameter);
    std::vector<float> numbers;
    places_->last.read_in_pieces(
        places_->values.at(parameter), [&](std::int64_t, std::span<const std::byte> bytes) {
            for (std::size_t i = 0; i < bytes.size() / size_of(at.type.dtype); ++i)
                numbers.push_back(static_cast<float>(
                    load_as_f64(bytes.data(), at.type.dtype, static_cast<std::int64_t>(i)) /
                    static_cast<double>(at.loss_scale)));
            return true;
        });
    return numbers;
}

double Gradients::norm() const {
    double squares = 0;
    for (const std::string& name : names_)
        for (const float x : read(name)) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(squares);
}

void Gradients::update(float learning_rate) {
    places_->last.set_input("learning_rate", std::span<const float>(&learning_rate, 1));
    places_->last.run_from(places_->stopped_at);
}

}  // namespace mantissa
