// The constants of a node that are not tensors: axes, flags, epsilons. Elements of constant tensors are bytes
// beside the graph, which nobody changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

/// Elements as they are stored, in row-major order. Copies of one are one memory, so that graphs and passes
/// hand it on at no cost, however large it is.
class SharedData {
  public:
    /// Throws UserError if the bytes are no whole number of elements, or a bool is neither 0 nor 1.
    SharedData(DType dtype, std::vector<std::byte> bytes);
    /// Each rounded once to a floating type. Throws UserError for a number that another type cannot hold.
    SharedData(DType dtype, std::span<const double> numbers);

    DType dtype() const { return content_->dtype; }
    std::span<const std::byte> bytes() const { return content_->bytes; }
    std::int64_t elements() const {
        return static_cast<std::int64_t>(bytes().size() / size_of(content_->dtype));
    }
    /// An element. I64 beyond 2^53 is rounded.
    double number(std::int64_t index) const;
    /// The numbers where they are few, as in "[1, 2.5]". Else their type, their bytes and 128 bits that
    /// follow from them, as in "[f32, 4096 bytes, 1c0f...]".
    const std::string& text() const { return content_->text; }

    friend bool operator==(const SharedData& a, const SharedData& b);

  private:
    struct Content {
        DType dtype;
        std::vector<std::byte> bytes;
        std::string text;
    };
    std::shared_ptr<const Content> content_;
};

class Graph;

/// A graph inside a node: its inputs are the node's operands, its results the node's outputs, each in order.
class Body {
  public:
    explicit Body(Graph graph);

    const Graph& graph() const { return *graph_; }
    /// The graph as text; equal bodies have equal texts.
    const std::string& text() const { return text_; }
    friend bool operator==(const Body& a, const Body& b) { return a.text_ == b.text_; }

  private:
    std::shared_ptr<const Graph> graph_;
    std::string text_;
};

/// Named constants in alphabetical order, so that equal nodes print and compare alike.
class Attributes {
  public:
    using Value = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>, DType, std::string,
                               Body, SharedData>;

    Attributes() = default;
    Attributes(std::initializer_list<std::pair<const std::string, Value>> entries) : entries_(entries) {}

    /// Each throws InternalError if there is no attribute of that name and kind.
    bool flag(const std::string& name) const;
    std::int64_t integer(const std::string& name) const;
    double number(const std::string& name) const;
    const std::vector<std::int64_t>& list(const std::string& name) const;
    const SharedData& data(const std::string& name) const;
    DType dtype(const std::string& name) const;
    const std::string& word(const std::string& name) const;
    const Body& body(const std::string& name) const;

    bool has(const std::string& name) const { return entries_.contains(name); }
    bool empty() const { return entries_.empty(); }
    /// The attributes with one entry added or replaced.
    Attributes with(const std::string& name, Value value) const {
        Attributes changed = *this;
        changed.entries_.insert_or_assign(name, std::move(value));
        return changed;
    }
    /// The attributes without one entry, where they have it.
    Attributes without(const std::string& name) const {
        Attributes changed = *this;
        changed.entries_.erase(name);
        return changed;
    }
    /// The attributes as in "{axis=1, keep=true}"; empty if there are none. Attributes that differ have texts
    /// that differ.
    std::string text() const;

    friend bool operator==(const Attributes&, const Attributes&) = default;

  private:
    template <class T>
    const T& get(const std::string& name) const;
    std::map<std::string, Value> entries_;
};

}  // namespace mantissa
