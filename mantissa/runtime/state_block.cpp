#include "mantissa/runtime/state_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

/// FNV-1a: tells the random numbers of different states apart, whatever the order of states.
std::uint32_t hash_of(std::string_view name) {
    std::uint32_t hash = 2166136261u;
    for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return hash;
}

/// Element i as RandomStream::uniform has it, four of a block at a time: a network of 140 million weights
/// would otherwise take seconds.
template <class T>
void fill_uniform(std::span<T> values, const Initializer& initializer, const RandomStream& stream) {
    for (std::size_t first = 0; first < values.size(); first += 4) {
        const auto words = stream.block(first / 4);
        for (std::size_t i = first; i < std::min(first + 4, values.size()); ++i) {
            const double in_unit = static_cast<double>(uniform_from_bits(words[i - first]));
            values[i] = static_cast<T>(initializer.mean + initializer.limit * (2 * in_unit - 1));
        }
    }
}

template <class T>
void fill(std::span<std::byte> bytes, const Initializer& initializer, const RandomStream& stream) {
    const std::span<T> values(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
    switch (initializer.kind) {
        case Initializer::Kind::constant:
            std::ranges::fill(values, static_cast<T>(initializer.mean));
            break;
        case Initializer::Kind::uniform:
            fill_uniform(values, initializer, stream);
            break;
        case Initializer::Kind::normal:
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = static_cast<T>(initializer.mean + initializer.standard_deviation *
                                                                  static_cast<double>(stream.normal(i)));
    }
}

void fill(std::span<std::byte> bytes, DType dtype, const Initializer& initializer,
          const RandomStream& stream) {
    switch (dtype) {
        case DType::f32:
            return fill<float>(bytes, initializer, stream);
        case DType::f64:
            return fill<double>(bytes, initializer, stream);
        case DType::bf16:
        case DType::f16: {
            std::vector<float> values(bytes.size() / size_of(dtype));
            fill<float>(std::as_writable_bytes(std::span(values)), initializer, stream);
            for (std::size_t i = 0; i < values.size(); ++i)
                store_from_f64(bytes.data(), dtype, static_cast<std::int64_t>(i),
                               static_cast<double>(values[i]));
            return;
        }
        case DType::i64:
            return fill<std::int64_t>(bytes, initializer, stream);
        case DType::i32:
            return fill<std::int32_t>(bytes, initializer, stream);
        default:
            throw InternalError(fmt::format("states of {} have no initializer", name_of(dtype)));
    }
}

/// The norm of each output of a weight, in FP64: of the rows of a matrix, of the last axis of filters.
std::vector<float> norms_of_outputs(const Shape& weight, std::span<const float> values) {
    const bool is_matrix = weight.rank() == 2;
    const std::int64_t outputs = weight[is_matrix ? 0 : -1], inputs = weight.elements() / outputs;
    std::vector<double> sums(static_cast<std::size_t>(outputs));
    for (std::int64_t i = 0; i < weight.elements(); ++i) {
        const double x = static_cast<double>(values[static_cast<std::size_t>(i)]);
        sums[static_cast<std::size_t>(is_matrix ? i / inputs : i % outputs)] += x * x;
    }
    std::vector<float> norms(sums.size());
    std::ranges::transform(sums, norms.begin(),
                           [](double sum) { return static_cast<float>(std::sqrt(sum)); });
    return norms;
}

}  // namespace

StateBlock::StateBlock(Device& device, std::span<const State> states, std::int64_t rank)
    : device_(device), rank_(rank) {
    allocate(states);
}

StateBlock::StateBlock(Device& device, std::span<const State> states, const StateBlock& shared)
    : device_(device), shared_(&shared) {
    allocate(states);
}

StateBlock::StateBlock(Device& device, std::span<const State> states, const StateBlock& whole,
                       std::int64_t index)
    : device_(device), shared_(&whole) {
    for (const State& state : states) {
        const Type& type = whole.type(state.name);
        if (type == state.type) continue;
        Type entries = state.type;
        entries.shape[0] = type.shape[0];
        check(entries == type && state.type.shape[0] == 1 && index < type.shape[0],
              "a state is one of those that lie in another");
        entries_[state.name] = {state.type, 0, whole.address(state.name) + index * state.type.bytes()};
    }
}

void StateBlock::allocate(std::span<const State> states) {
    const auto aligned = [alignment = device_.target().alignment](std::int64_t bytes) {
        return align_up(bytes, alignment);
    };
    for (const State& state : states) {
        if (shared_ && shared_->has(state.name)) {
            if (shared_->type(state.name) != state.type)
                throw UserError(fmt::format("state '{}' is {} in this graph, but {} where it is kept",
                                            state.name, state.type.text(), shared_->type(state.name).text()));
            check(shared_->zero_rows(state.name) >= state.zero_rows, "a shared state has rows of zeros");
            continue;
        }
        states_.push_back(state);
        if (!state.norms_of.empty()) norms_[state.norms_of].push_back(state.name);
        bytes_ += aligned(state.stored_bytes());
    }
    memory_ = device_.allocate_zeroed(bytes_, "model and optimizer state");
    std::byte* next = memory_->data();
    for (const State& state : states_) {
        check(!entries_.contains(state.name), "states have different names");
        entries_[state.name] = {state.type, state.zero_rows, next,
                                state.shard_of ? state.shard_of->elements() : 0};
        next += aligned(state.stored_bytes());
    }
}

bool StateBlock::has(const std::string& name) const {
    return entries_.contains(name) || (shared_ && shared_->has(name));
}

void StateBlock::initialize(std::uint64_t seed) {
    for (const State& state : states_) {
        if (state.kind == State::Kind::derived || !state.norms_of.empty()) continue;
        const DType dtype = has_codes(state.type.layout) ? DType::f32 : state.type.dtype;
        const Type whole{dtype, state.shard_of.value_or(state.type.shape)};
        std::vector<std::byte> value(whole.bytes());
        if (state.values)
            state.values(value);
        else
            fill(value, dtype, state.initializer,
                 {.seed = seed, .step = 0, .operation = hash_of(state.name)});
        write(state.name, value);
    }
}

const StateBlock::Entry& StateBlock::entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    if (shared_) return shared_->entry(name);
    std::vector<std::string> names;
    for (const auto& [known, _] : entries_) names.push_back(known);
    throw UserError(fmt::format("there is no state '{}' among these {}: {}", name, entries_.size(),
                                names_text(names, 12)));
}

std::byte* StateBlock::address(const std::string& name) const { return entry(name).address; }

const Type& StateBlock::type(const std::string& name) const { return entry(name).type; }

std::int64_t StateBlock::zero_rows(const std::string& name) const { return entry(name).zero_rows; }

bool StateBlock::lacks_zeros(std::span<const State> states) const {
    return std::ranges::any_of(states, [this](const State& state) {
        return has(state.name) && zero_rows(state.name) < state.zero_rows;
    });
}

std::vector<std::byte> StateBlock::read(const std::string& name) const {
    std::vector<std::byte> value(type(name).bytes());
    device_.copy_to_host(value, address(name));
    return value;
}

void StateBlock::read(const std::string& name, std::int64_t begin, std::span<std::byte> to) const {
    check(begin >= 0 && begin + static_cast<std::int64_t>(to.size()) <= type(name).bytes(),
          "what is read of a state lies in it");
    device_.copy_to_host(to, address(name) + begin);
}

void StateBlock::write(const std::string& name, std::span<const std::byte> value) {
    const Entry& to = entry(name);
    const auto size = static_cast<std::int64_t>(size_of(to.type.dtype));
    std::vector<std::byte> part;
    if (to.whole_elements > 0 && std::ssize(value) == to.whole_elements * size &&
        std::ssize(value) != to.type.bytes()) {
        const std::int64_t first = std::min(to.whole_elements, rank_ * to.type.shape.elements());
        value = value.subspan(first * size);
        part.resize(to.type.bytes());
        std::copy_n(value.begin(), std::min(value.size(), part.size()), part.begin());
        value = part;
    }
    if (has_codes(to.type.layout) && std::ssize(value) != to.type.bytes()) {
        const std::span weights(reinterpret_cast<const float*>(value.data()), value.size() / sizeof(float));
        part.resize(to.type.bytes());
        write_codes({to.type.layout, to.type.shape[0], to.type.shape[1]}, weights, part.data());
        value = part;
    }
    check(std::ssize(value) == to.type.bytes(), "a state is written whole");
    device_.copy_to_device(to.address, value);
    ++writes_;
    if (norms_.contains(name)) write_norms(name);
}

void StateBlock::write_norms(const std::string& weight) {
    const Shape& shape = type(weight).shape;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    read_numbers(weight, 0, values);
    const std::vector<float> norms = norms_of_outputs(shape, values);
    for (const std::string& state : norms_.at(weight)) write(state, std::as_bytes(std::span(norms)));
}

void StateBlock::read_numbers(const std::string& name, std::int64_t first, std::span<float> to) const {
    const Type& of = type(name);
    check(is_floating(of.dtype) && first + std::ssize(to) <= of.shape.elements(), "there are such numbers");
    if (has_codes(of.layout)) {
        const std::vector<std::byte> codes = read(name);
        return read_codes({of.layout, of.shape[0], of.shape[1]}, codes.data(), first, to);
    }
    const auto size = static_cast<std::int64_t>(size_of(of.dtype));
    std::vector<std::byte> stored(to.size() * size_of(of.dtype));
    read(name, first * size, stored);
    for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = static_cast<float>(load_as_f64(stored.data(), of.dtype, static_cast<std::int64_t>(i)));
}

std::vector<float> StateBlock::read_f32(const std::string& name) const {
    check(type(name).dtype == DType::f32, "the state is f32");
    const std::vector<std::byte> bytes = read(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

}  // namespace mantissa
