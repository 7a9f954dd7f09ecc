#include "mantissa/runtime/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/runtime/constant_bytes.h"

namespace mantissa::inline v0 {

namespace {

/// Throws UserError, naming the line that traced the state, if none of its name and type is kept.
void require_kept(const Plan& plan, const State& state, const StateBlock& block) {
    const Origin& origin = plan.graph().node(state.node).origin;
    try {
        if (const Type& kept = block.type(state.name); kept != state.type)
            throw UserError(fmt::format("'{}' is {}, but {} where it is kept", state.name, state.type.text(),
                                        kept.text()));
    } catch (const UserError& error) {
        refuse("state", origin, error.what());
    }
    check(block.zero_rows(state.name) >= state.zero_rows, "a padded state lies before rows of zeros");
}

}  // namespace

Execution::Execution(const Plan& plan, StateBlock& state, DeviceMemory& arena)
    : plan_(plan), state_(state), arena_(arena) {
    check(static_cast<std::int64_t>(arena.size()) >= plan.memory().arena_bytes, "the arena is large enough");
    for (const State& each : plan.graph().states()) require_kept(plan, each, state);
    place_inputs_and_constants();
    place_small_results();
    bind();
}

Execution::~Execution() {
    try {
        finish();
    } catch (const std::exception&) {  // it is being left because of an error, perhaps this one
    }
}

void Execution::place_inputs_and_constants() {
    const Graph& graph = plan_.graph();
    Device& device = plan_.device();
    inputs_ = device.allocate(plan_.input_bytes(), "inputs");
    std::byte* next = inputs_->data();
    std::vector<std::span<std::byte>> inputs;
    for (NodeId id : graph.inputs()) {
        const std::int64_t bytes = graph.node(id).outputs[0].bytes();
        input_addresses_.push_back(next);
        inputs.emplace_back(next, static_cast<std::size_t>(bytes));
        next += plan_.aligned(bytes);
    }
    if (device.target().overlaps_copies && !inputs.empty())
        staging_ = std::make_unique<InputStaging>(device, std::move(inputs),
                                                  std::span(next, inputs_->data() + inputs_->size()));
    constants_ = device.allocate(plan_.constant_bytes(), "constants");
    next = constants_->data();
    for (NodeId id : plan_.memory().constants) {
        constant_addresses_.push_back(next);
        const Node& node = graph.node(id);
        device.copy_to_device(next, constant_bytes(node));
        next += plan_.aligned(graph.node(id).outputs[0].bytes());
    }
}

void Execution::place_small_results() {
    constexpr std::int64_t max_bytes = 64;  // losses, norms, flags
    const Graph& graph = plan_.graph();
    const auto size = [&](const Result& result) {
        const std::int64_t bytes = graph.type(result.value).bytes();
        return bytes <= max_bytes ? static_cast<std::size_t>(bytes) : 0;
    };
    small_results_memory_ = plan_.device().allocate_on_host(
        graph.results().size() * static_cast<std::size_t>(max_bytes), "results");
    for (std::size_t i = 0; i < graph.results().size(); ++i)
        small_results_.push_back(small_results_memory_->bytes().subspan(
            i * static_cast<std::size_t>(max_bytes), size(graph.results()[i])));
}

std::byte* Execution::address(Value value) const {
    const Place& place = plan_.memory().place(value);
    const auto at = static_cast<std::size_t>(place.index);
    switch (place.kind) {
        case Place::Kind::input:
            return input_addresses_[at] + place.offset;
        case Place::Kind::constant:
            return constant_addresses_[at] + place.offset;
        case Place::Kind::state:
            return state_.address(plan_.graph().states()[at].name) + place.offset;
        case Place::Kind::arena:
            return arena_.data() + place.offset;
        case Place::Kind::none:
            break;
    }
    check(plan_.graph().type(value).bytes() == 0, "every value with elements has a place");
    return nullptr;
}

std::span<std::byte> Execution::memory_of(Value value) const {
    return {address(value), static_cast<std::size_t>(plan_.graph().type(value).bytes())};
}

BoundLaunch Execution::bound(const PlannedNode& planned) const {
    const Node& node = plan_.graph().node(planned.node);
    BoundLaunch launch{.launch = &planned.launch, .inputs = {}, .outputs = {}};
    for (const Value& input : node.inputs) launch.inputs.emplace_back(memory_of(input));
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
        launch.outputs.push_back(memory_of({planned.node, i}));
    if (const std::int64_t offset = plan_.memory().workspace[planned.node]; offset >= 0)
        launch.workspace = {arena_.data() + offset, static_cast<std::size_t>(planned.workspace)};
    return launch;
}

BoundCopy Execution::bound(const Update& update) const {
    const State& state = plan_.graph().state(update.state);
    return {.from = memory_of(update.value), .to = state_.address(state.name)};
}

void Execution::bind() {
    std::vector<BoundStep> steps;
    for (const PlannedNode& planned : plan_.nodes()) steps.emplace_back(bound(planned));
    for (int index : plan_.memory().copied_updates) steps.emplace_back(bound(plan_.graph().updates()[index]));
    program_ = plan_.device().bind(steps);
}

bool Execution::has_input(std::string_view name) const {
    const Graph& graph = plan_.graph();
    return std::ranges::any_of(graph.inputs(),
                               [&](NodeId id) { return graph.node(id).attributes.word("name") == name; });
}

void Execution::set_input(std::string_view name, std::span<const std::byte> value) {
    const Graph& graph = plan_.graph();
    for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
        const Node& node = graph.node(graph.inputs()[i]);
        if (node.attributes.word("name") != name) continue;
        if (std::ssize(value) != node.outputs[0].bytes())
            throw UserError(fmt::format("input '{}' is {}, {} bytes, got {}", name, node.outputs[0].text(),
                                        node.outputs[0].bytes(), value.size()));
        if (staging_)
            staging_->give(i, value);
        else
            plan_.device().copy_to_device(input_addresses_[i], value);
        return;
    }
    throw UserError(fmt::format("the graph has no input '{}'", name));
}

void Execution::run(Profile* profile) {
    if (!profile) {
        start();
        finish();
        return;
    }
    const std::vector<std::unique_ptr<Event>> events = run_with_events();
    profile->clear();
    for (std::size_t i = 0; i + 1 < events.size(); ++i)
        profile->push_back(plan_.device().seconds_between(*events[i], *events[i + 1]));
}

void Execution::start() {
    give_inputs();
    program_->run();
    bring_small_results();
    done_ = plan_.device().record();
}

void Execution::finish() {
    if (done_) plan_.device().wait(*done_);
    done_.reset();
}

void Execution::give_inputs() {
    small_results_are_there_ = false;
    if (staging_) staging_->queue();
}

void Execution::bring_small_results() {
    for (std::size_t i = 0; i < small_results_.size(); ++i)
        if (!small_results_[i].empty())
            plan_.device().queue_to_host(Queue::work, small_results_[i],
                                         address(plan_.graph().results()[i].value));
    small_results_are_there_ = true;
}

std::vector<std::unique_ptr<Event>> Execution::run_with_events() {
    std::vector<std::unique_ptr<Event>> events;
    give_inputs();
    events.push_back(plan_.device().record());
    for (std::size_t i = 0; i < plan_.nodes().size(); ++i) {
        program_->run_step(i);
        events.push_back(plan_.device().record());
    }
    copy_updates();
    bring_small_results();
    wait_for_all();
    return events;
}

void Execution::copy_updates() {
    const std::size_t launches = plan_.nodes().size();
    for (std::size_t i = 0; i < plan_.memory().copied_updates.size(); ++i) program_->run_step(launches + i);
}

void Execution::wait_for_all() {
    const std::unique_ptr<Event> done = plan_.device().record();
    plan_.device().wait(*done);
}

bool Execution::run_while(FunctionRef<bool(NodeId)> before, FunctionRef<bool(NodeId)> after) {
    give_inputs();
    for (std::size_t i = 0; i < plan_.nodes().size(); ++i) {
        const NodeId node = plan_.nodes()[i].node;
        if (!before(node)) return false;
        program_->run_step(i);
        wait_for_all();
        if (!after(node)) return false;
    }
    copy_updates();
    bring_small_results();
    wait_for_all();
    return true;
}

void Execution::run_from(NodeId node) {
    give_inputs();
    for (std::size_t i = 0; i < plan_.nodes().size(); ++i)
        if (plan_.nodes()[i].node >= node) program_->run_step(i);
    copy_updates();
    bring_small_results();
    wait_for_all();
}

void Execution::read_value(Value value, std::int64_t offset, std::span<std::byte> bytes) const {
    check(
        offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= plan_.graph().type(value).bytes(),
        "what is read lies within the value");
    plan_.device().copy_to_host(bytes, address(value) + offset);
}

bool Execution::read_in_pieces(
    Value value, FunctionRef<bool(std::int64_t first, std::span<const std::byte> bytes)> piece) const {
    constexpr std::int64_t max_elements = 1 << 16;
    const Type& type = plan_.graph().type(value);
    const auto size = static_cast<std::int64_t>(size_of(type.dtype));
    std::vector<std::byte> bytes, codes(has_codes(type.layout) ? type.bytes() : 0);
    read_value(value, 0, codes);
    std::vector<float> numbers;
    for (std::int64_t first = 0; first < type.shape.elements(); first += max_elements) {
        const std::int64_t count = std::min(max_elements, type.shape.elements() - first);
        bytes.resize(count * size);
        if (codes.empty()) {
            read_value(value, first * size, bytes);
        } else {
            numbers.resize(count);
            read_codes({type.layout, type.shape[0], type.shape[1]}, codes.data(), first, numbers);
            for (std::int64_t i = 0; i < count; ++i)
                store_from_f64(bytes.data(), type.dtype, i, static_cast<double>(numbers[i]));
        }
        if (!piece(first, bytes)) return false;
    }
    return true;
}

std::vector<std::byte> Execution::read_result(std::string_view name) const {
    const std::vector<Result>& results = plan_.graph().results();
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].name != name) continue;
        if (small_results_are_there_ && !small_results_[i].empty())
            return {small_results_[i].begin(), small_results_[i].end()};
        std::vector<std::byte> value(plan_.graph().type(results[i].value).bytes());
        plan_.device().copy_to_host(value, address(results[i].value));
        return value;
    }
    throw UserError(fmt::format("the graph has no result '{}'", name));
}

float Execution::read_scalar(std::string_view name) const {
    const std::vector<std::byte> bytes = read_result(name);
    if (bytes.size() != sizeof(float))
        throw UserError(fmt::format("result '{}' is no f32 scalar: it has {} bytes", name, bytes.size()));
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return plain_nan(value);
}

}  // namespace mantissa
