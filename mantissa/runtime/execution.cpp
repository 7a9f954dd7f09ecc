#include "mantissa/runtime/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

template <class T>
std::vector<std::byte> filled(const Type& type, T value) {
    std::vector<T> values(static_cast<std::size_t>(type.shape.elements()), value);
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::vector<std::byte> constant_bytes(const Node& node) {
    const double value = node.attributes.number("value");
    const Type& type = node.outputs[0];
    switch (type.dtype) {
        case DType::f32:
            return filled(type, static_cast<float>(value));
        case DType::f64:
            return filled(type, static_cast<double>(value));
        case DType::i64:
            return filled(type, static_cast<std::int64_t>(value));
        case DType::i32:
            return filled(type, static_cast<std::int32_t>(value));
        case DType::u8:
            return filled(type, static_cast<std::uint8_t>(value));
        case DType::s8:
            return filled(type, static_cast<std::int8_t>(value));
        case DType::boolean:
            return filled(type, std::uint8_t{value != 0});
        case DType::f16:
            return filled(type, to_fp16(static_cast<float>(value)));
        case DType::bf16:
            return filled(type, to_bf16(static_cast<float>(value)));
    }
    throw InternalError("a storage type outside of its enumeration");
}

}  // namespace

Execution::Execution(const Plan& plan, StateBlock& state, DeviceMemory& arena)
    : plan_(plan), state_(state), arena_(arena) {
    check(static_cast<std::int64_t>(arena.size()) >= plan.memory().arena_bytes, "the arena is large enough");
    for (const State& each : plan.graph().states())
        check(state.zero_rows(each.name) >= each.zero_rows, "a padded state lies before rows of zeros");
    place_inputs_and_constants();
    bind();
}

void Execution::place_inputs_and_constants() {
    const Graph& graph = plan_.graph();
    Device& device = plan_.device();
    inputs_ = device.allocate(static_cast<std::size_t>(plan_.input_bytes()), "inputs");
    std::byte* next = inputs_->data();
    for (NodeId id : graph.inputs()) {
        input_addresses_.push_back(next);
        next += align_up(graph.node(id).outputs[0].bytes());
    }
    constants_ = device.allocate(static_cast<std::size_t>(plan_.constant_bytes()), "constants");
    next = constants_->data();
    for (NodeId id : plan_.memory().constants) {
        constant_addresses_.push_back(next);
        device.copy_to_device(next, constant_bytes(graph.node(id)));
        next += align_up(graph.node(id).outputs[0].bytes());
    }
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

void Execution::bind() {
    for (const PlannedNode& planned : plan_.nodes()) {
        const Node& node = plan_.graph().node(planned.node);
        Step step;
        for (const Value& input : node.inputs) step.inputs.push_back(address(input));
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
            step.outputs.push_back(address({planned.node, i}));
        if (const std::int64_t offset = plan_.memory().workspace[static_cast<std::size_t>(planned.node)];
            offset >= 0)
            step.workspace = arena_.data() + offset;
        steps_.push_back(std::move(step));
    }
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
        check(static_cast<std::int64_t>(value.size()) == node.outputs[0].bytes(), "an input is given whole");
        plan_.device().copy_to_device(input_addresses_[i], value);
        return;
    }
    throw InternalError(fmt::format("the graph has no input '{}'", name));
}

void Execution::run(Profile* profile) {
    if (!profile) {
        for (std::size_t i = 0; i < steps_.size(); ++i) launch(i);
        copy_updates();
        wait_for_all();
        return;
    }
    const std::vector<std::unique_ptr<Event>> events = run_with_events();
    profile->clear();
    for (std::size_t i = 0; i + 1 < events.size(); ++i)
        profile->push_back(plan_.device().seconds_between(*events[i], *events[i + 1]));
}

std::vector<std::unique_ptr<Event>> Execution::run_with_events() {
    std::vector<std::unique_ptr<Event>> events;
    events.push_back(plan_.device().record());
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        launch(i);
        events.push_back(plan_.device().record());
    }
    copy_updates();
    wait_for_all();
    return events;
}

void Execution::launch(std::size_t i) {
    const Step& step = steps_[i];
    plan_.device().launch(plan_.nodes()[i].launch, {step.inputs, step.outputs, step.workspace});
}

void Execution::wait_for_all() {
    const std::unique_ptr<Event> done = plan_.device().record();
    plan_.device().wait(*done);
}

bool Execution::run_while(FunctionRef<bool(NodeId)> before, FunctionRef<bool(NodeId)> after) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const NodeId node = plan_.nodes()[i].node;
        if (!before(node)) return false;
        launch(i);
        wait_for_all();
        if (!after(node)) return false;
    }
    copy_updates();
    wait_for_all();
    return true;
}

void Execution::read_value(Value value, std::int64_t offset, std::span<std::byte> bytes) const {
    check(
        offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= plan_.graph().type(value).bytes(),
        "what is read lies within the value");
    plan_.device().copy_to_host(bytes, address(value) + offset);
}

bool Execution::read_in_pieces(
    Value value, FunctionRef<bool(std::int64_t first, std::span<const std::byte> bytes)> piece) const {
    constexpr std::int64_t most_elements = 1 << 16;
    const Type& type = plan_.graph().type(value);
    const auto size = static_cast<std::int64_t>(size_of(type.dtype));
    std::vector<std::byte> bytes;
    for (std::int64_t first = 0; first < type.shape.elements(); first += most_elements) {
        const std::int64_t count = std::min(most_elements, type.shape.elements() - first);
        bytes.resize(static_cast<std::size_t>(count * size));
        read_value(value, first * size, bytes);
        if (!piece(first, bytes)) return false;
    }
    return true;
}

void Execution::copy_updates() {
    const Graph& graph = plan_.graph();
    for (int index : plan_.memory().copied_updates) {
        const Update& update = graph.updates()[static_cast<std::size_t>(index)];
        const State& state = graph.states()[static_cast<std::size_t>(update.state)];
        plan_.device().copy_on_device(state_.address(state.name), address(update.value),
                                      static_cast<std::size_t>(state.type.bytes()));
    }
}

std::vector<std::byte> Execution::read_result(std::string_view name) const {
    for (const Result& result : plan_.graph().results()) {
        if (result.name != name) continue;
        std::vector<std::byte> value(static_cast<std::size_t>(plan_.graph().type(result.value).bytes()));
        plan_.device().copy_to_host(value, address(result.value));
        return value;
    }
    throw InternalError(fmt::format("the graph has no result '{}'", name));
}

float Execution::read_scalar(std::string_view name) const {
    const std::vector<std::byte> bytes = read_result(name);
    check(bytes.size() == sizeof(float), "the result is an f32 scalar");
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

}  // namespace mantissa
