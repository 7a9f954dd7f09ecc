// Graphs run on the CPU at a chosen level of instruction sets, for tests.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/numerics/scalar.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/lowest_level.h"
#include "tests/support/nan_memory.h"

namespace mantissa::testing {

/// A device at one level of instruction sets.
inline std::unique_ptr<Device> device_at(const std::string& level, int threads = 2) {
    ::setenv("MANTISSA_ISA", level.c_str(), 1);
    auto device = make_cpu_device({.threads = threads});
    ::unsetenv("MANTISSA_ISA");
    return device;
}

/// All levels of this machine, lowest first.
inline std::vector<std::string> levels() {
    std::vector<std::string> names;
    for (int level = static_cast<int>(lowest_level()); level <= static_cast<int>(on_cpu::best_isa()); ++level)
        names.emplace_back(name_of(static_cast<on_cpu::Isa>(level)));
    return names;
}

template <class T>
std::vector<std::byte> stored(const std::vector<double>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const T value = stored_as<T>(values[i]);
        std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
    return bytes;
}

inline std::vector<std::byte> stored(const std::vector<double>& values, DType dtype) {
    switch (dtype) {
        case DType::f32:
            return stored<float>(values);
        case DType::f64:
            return stored<double>(values);
        case DType::i32:
            return stored<std::int32_t>(values);
        case DType::i64:
            return stored<std::int64_t>(values);
        case DType::bf16:
            return stored<BF16>(values);
        case DType::f16:
            return stored<FP16>(values);
        case DType::s8:
            return stored<std::int8_t>(values);
        default:
            return stored<std::uint8_t>(values);
    }
}

template <class T>
std::vector<double> loaded(const std::vector<std::byte>& bytes) {
    std::vector<double> values(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        values[i] = static_cast<double>(number(value));
    }
    return values;
}

inline std::vector<double> loaded(const std::vector<std::byte>& bytes, DType dtype) {
    switch (dtype) {
        case DType::f32:
            return loaded<float>(bytes);
        case DType::f64:
            return loaded<double>(bytes);
        case DType::i32:
            return loaded<std::int32_t>(bytes);
        case DType::i64:
            return loaded<std::int64_t>(bytes);
        case DType::bf16:
            return loaded<BF16>(bytes);
        case DType::f16:
            return loaded<FP16>(bytes);
        case DType::s8:
            return loaded<std::int8_t>(bytes);
        default:
            return loaded<std::uint8_t>(bytes);
    }
}

/// The bytes of a graph's inputs, by name.
using Bytes = std::map<std::string, std::vector<std::byte>>;

/// Runs a graph in an arena full of NaN and returns its results.
inline std::vector<std::vector<std::byte>> run(const Graph& graph, const Bytes& inputs, Device& device) {
    const Plan plan(graph, device);
    StateBlock state(device, graph.states());
    const auto arena = nan_memory(device, plan.memory().arena_bytes);
    Execution execution(plan, state, *arena);
    for (NodeId id : graph.inputs()) {
        const std::string& name = graph.node(id).attributes.word("name");
        execution.set_input(name, inputs.at(name));
    }
    execution.run();
    std::vector<std::vector<std::byte>> results;
    for (const Result& result : graph.results()) results.push_back(execution.read_result(result.name));
    return results;
}

/// Runs a graph on numbers, stored in its inputs' types.
inline std::vector<std::vector<std::byte>> run(const Graph& graph, const ReferenceFeed& feed,
                                               Device& device) {
    Bytes inputs;
    for (NodeId id : graph.inputs()) {
        const std::string& name = graph.node(id).attributes.word("name");
        inputs[name] = stored(feed.at(name), graph.node(id).outputs[0].dtype);
    }
    return run(graph, inputs, device);
}

}  // namespace mantissa::testing
