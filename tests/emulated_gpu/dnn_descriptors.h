// The descriptors of the emulated cuDNN: which attributes each kind has, of which type, and what must be set.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "mantissa/device/cuda/cudnn.h"
#include "tests/emulated_gpu/convolution_job.h"

namespace mantissa::inline v0::cuda {

/// An engine that the library offers for a graph.
struct DnnEngine {
    std::int64_t number = 0;
    EngineKind kind = EngineKind::plain;
    std::uint64_t workspace = 0;

    std::vector<DnnNote> notes() const;
};

struct DnnDescriptorOf {
    struct Elements {
        std::int64_t count = 0;
        std::vector<std::byte> bytes = {};
    };
    DnnDescriptorKind kind = DnnDescriptorKind::tensor;
    bool finalized = false;
    std::map<DnnAttribute, Elements> attributes = {};
    /// The tensor of a graph that lies in memory.
    struct Argument {
        std::int64_t id = 0, alignment = 1;
        DnnType type = DnnType::f32;
        bool is_nhwc = false;
    };
    /// The job of a graph, and of what is made for one: the convolution, without addresses, and x, w, y and
    /// perhaps the bias.
    ConvolutionJob job = {};
    std::vector<Argument> arguments = {};
    /// The engines that heuristics offer. Of an engine, its configuration and a plan: the one.
    std::vector<DnnEngine> engines = {};

    bool has(DnnAttribute attribute) const { return attributes.contains(attribute); }
    template <class T>
    std::vector<T> all(DnnAttribute attribute) const {
        const auto found = attributes.find(attribute);
        if (found == attributes.end()) return {};
        std::vector<T> values(static_cast<std::size_t>(found->second.count));
        std::memcpy(values.data(), found->second.bytes.data(), found->second.bytes.size());
        return values;
    }
    /// The first element, which was set.
    template <class T>
    T one(DnnAttribute attribute) const {
        return all<T>(attribute).at(0);
    }
};

/// A status other than success, in words.
struct DnnRefusal {
    DnnStatus status = DnnStatus::success;
    std::string words = {};
};

/// Sets an attribute as the library does: those that the kind has, of their type, before it is finalized.
DnnRefusal set_attribute(DnnDescriptorOf& descriptor, DnnAttribute attribute, DnnAttributeType type,
                         std::int64_t count, const void* elements);

/// The refusal of what is missing or does not fit, and for graphs what they compute.
DnnRefusal finish(DnnDescriptorOf& descriptor);

/// The operation of a graph that convolves, and the one that adds a bias; null if there is none.
struct DnnOperations {
    const DnnDescriptorOf *convolution = nullptr, *addition = nullptr;
};
DnnOperations operations_of(const DnnDescriptorOf& graph);

/// The tensors of a convolution, the last of which is what a forward one makes before a bias is added.
struct DnnTensors {
    const DnnDescriptorOf *x = nullptr, *w = nullptr, *y = nullptr;
};
DnnTensors tensors_of(const DnnDescriptorOf& operation);

}  // namespace mantissa::cuda
