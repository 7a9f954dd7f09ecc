#include "mantissa/train/gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

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
            throw UserError(
                "gradients are shown whole, and a rank with sharded states has parts of them: give --states "
                "whole");
    }
    throw InternalError("the graph updates no parameters: it has no norm of all gradients");
}

/// Of the gradients, the one that a parameter's update reads. Two parameters may have one between them.
const Value* gradient_of(const Graph& graph, const std::string& parameter,
                         const std::vector<Value>& gradients) {
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.origin.stage != Stage::update || node.origin.scope != parameter) continue;
        for (const Value& input : node.inputs) {
            const auto found = std::find(gradients.begin(), gradients.end(), input);
            if (found != gradients.end()) return &*found;
        }
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

Gradients::Gradients(Execution& last, float loss_scale)
    : last_(&last), stopped_at_(norm_of(last.plan().graph())), loss_scale_(loss_scale) {
    const Graph& graph = last.plan().graph();
    for (NamedGradient& each : gradients_of(graph, graph.node(stopped_at_).inputs)) {
        names_.push_back(each.parameter);
        values_.emplace(std::move(each.parameter), each.gradient);
    }
    last.run_while([&](NodeId id) { return id != stopped_at_; }, [](NodeId) { return true; });
    loss_ = last.read_scalar("loss");
}

Value Gradients::value_of(const std::string& parameter) const {
    const auto found = values_.find(parameter);
    if (found == values_.end())
        throw UserError(fmt::format("'{}' is no parameter that is trained; there are {}", parameter,
                                    fmt::join(names_, ", ")));
    return found->second;
}

std::vector<float> Gradients::read(const std::string& parameter) const {
    const Value value = value_of(parameter);
    const DType dtype = last_->plan().graph().type(value).dtype;
    std::vector<float> numbers;
    last_->read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        for (std::size_t i = 0; i < bytes.size() / size_of(dtype); ++i)
            numbers.push_back(
                static_cast<float>(load_as_f64(bytes.data(), dtype, static_cast<std::int64_t>(i)) /
                                   static_cast<double>(loss_scale_)));
        return true;
    });
    return numbers;
}

Gradients::Place Gradients::place(const std::string& parameter) const {
    const Value value = value_of(parameter);
    return {last_->plan().graph().type(value), last_->place_of(value), loss_scale_};
}

double Gradients::norm() const {
    double squares = 0;
    for (const std::string& name : names_)
        for (const float x : read(name)) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(squares);
}

void Gradients::update(float learning_rate) {
    last_->set_input("learning_rate", std::span<const float>(&learning_rate, 1));
    last_->run_from(stopped_at_);
}

}  // namespace mantissa
