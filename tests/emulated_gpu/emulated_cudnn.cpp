// cuDNN's checks, what it takes and refuses, and descriptors as the library has them. It refuses what cuDNN
// 9.19 was seen to refuse where it finished plans for GPUs without one (bench/cudnn_engines.py), and as not
// supported what the emulated GPU does not offer.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "mantissa/device/tf32_refusal.h"
#include "tests/emulated_gpu/dnn_descriptors.h"
#include "tests/emulated_gpu/run_libraries.h"

namespace mantissa::inline v0::cuda {

struct DnnHandleOf {
    Stream stream = nullptr;
};

namespace {

using Kind = DnnDescriptorKind;
using Argument = DnnDescriptorOf::Argument;

/// Tensor cores read this many bytes at a time.
constexpr std::int64_t tensor_core_alignment = 16;

DType dtype_of(DnnType type) {
    return type == DnnType::f32 ? DType::f32 : type == DnnType::f16 ? DType::f16 : DType::bf16;
}

std::int64_t min_alignment(const std::vector<Argument>& arguments) {
    std::int64_t least = tensor_core_alignment;
    for (const Argument& one : arguments) least = std::min(least, one.alignment);
    return least;
}

/// The engines that are offered, the best first. Numbers are nobody's but ours, but that of the symmetric
/// one.
std::vector<DnnEngine> engines_of(const DnnDescriptorOf& graph, DnnHeuristics mode) {
    const std::vector<Argument>& arguments = graph.arguments;
    const DnnType type = arguments[0].type;
    // Seen of cuDNN 9.19: nothing where the result is of another type than the operands.
    for (const Argument& one : arguments)
        if (one.type != type || !one.is_nhwc) return {};
    const bool is_f32 = type == DnnType::f32, is_aligned = min_alignment(arguments) >= tensor_core_alignment;
    if (min_alignment(arguments) < static_cast<std::int64_t>(size_of(dtype_of(type)))) return {};
    if (!is_f32 && !is_aligned) return {};
    const Convolution& of = graph.job.of;
    const auto kept_filter =
        static_cast<std::uint64_t>(of.filter_shape().elements()) * size_of(dtype_of(type));
    if (mode == DnnHeuristics::fallback)
        return {{.number = 1, .kind = EngineKind::symmetric, .workspace = kept_filter},
                {.number = 0, .workspace = kept_filter}};
    std::vector<DnnEngine> engines;
    if (is_f32 && is_aligned && tf32_refusal().empty())
        engines.push_back({.number = 46, .kind = EngineKind::tensor_core, .workspace = kept_filter});
    if (!is_f32) engines.push_back({.number = 22, .kind = EngineKind::tensor_core});
    if (graph.job.makes != codegen::ConvolutionResult::output)
        engines.insert(engines.begin(), {.number = 25, .kind = EngineKind::nondeterministic});
    const bool by_three = of.vertical.filter == 3 && of.horizontal.filter == 3 && of.vertical.stride == 1 &&
                          of.horizontal.stride == 1;
    if (is_f32 && by_three) engines.push_back({.number = 12, .kind = EngineKind::winograd});
    // FP32 in the backward passes has fallbacks alone that do without tensor cores, as cuDNN often has it.
    if (is_f32 && graph.job.makes == codegen::ConvolutionResult::output) engines.push_back({.number = 28});
    return engines;
}

class EmulatedDnn {
  public:
    explicit EmulatedDnn(RunConvolution run) : run_(std::move(run)) {}

    DnnStatus create(DnnHandle* handle) {
        if (!handle) return refuse({DnnStatus::null_pointer, "there is no place for the handle"});
        handles_.push_back(std::make_unique<DnnHandleOf>());
        *handle = handles_.back().get();
        return DnnStatus::success;
    }
    DnnStatus destroy(DnnHandle handle) {
        return std::erase_if(handles_, [&](const auto& one) { return one.get() == handle; }) > 0
                   ? DnnStatus::success
                   : refuse({DnnStatus::bad_param, "the handle is not known"});
    }
    DnnStatus set_stream(DnnHandle handle, Stream stream) {
        if (!has(handle)) return refuse({DnnStatus::bad_param, "the handle is not known"});
        handle->stream = stream;
        return DnnStatus::success;
    }

    DnnStatus create(Kind kind, DnnDescriptor* descriptor) {
        auto made = std::make_unique<DnnDescriptorOf>();
        made->kind = kind;
        *descriptor = made.get();
        descriptors_[made.get()] = std::move(made);
        return DnnStatus::success;
    }
    DnnStatus destroy(DnnDescriptor descriptor) {
        return descriptors_.erase(descriptor) ? DnnStatus::success : refuse(unknown);
    }
    DnnStatus finalize(DnnDescriptor descriptor) {
        if (!descriptors_.contains(descriptor)) return refuse(unknown);
        const DnnRefusal refusal = finish(*descriptor);
        if (refusal.status == DnnStatus::success && descriptor->kind == Kind::heuristics)
            descriptor->engines =
                engines_of(*descriptor, descriptor->one<DnnHeuristics>(DnnAttribute::heuristics_mode));
        return refuse(refusal);
    }
    DnnStatus set(DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type, std::int64_t count,
                  const void* elements) {
        if (!descriptors_.contains(descriptor)) return refuse(unknown);
        if (type == DnnAttributeType::descriptor && elements)
            for (std::int64_t i = 0; i < count; ++i)
                if (!descriptors_.contains(static_cast<const DnnDescriptor*>(elements)[i]))
                    return refuse(unknown);
        return refuse(set_attribute(*descriptor, attribute, type, count, elements));
    }

    DnnStatus get(DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type, std::int64_t asked,
                  std::int64_t* count, void* elements) {
        if (!descriptors_.contains(descriptor)) return refuse(unknown);
        if (!descriptor->finalized) return refuse({DnnStatus::not_finalized, "it is not finalized"});
        const auto answer = [&]<class T>(DnnAttributeType own, const std::vector<T>& values) {
            if (type != own) return refuse({DnnStatus::attribute_type, "the attribute is of another type"});
            if (count) *count = static_cast<std::int64_t>(values.size());
            const auto written = std::min(static_cast<std::size_t>(asked), values.size());
            if (written > 0) std::memcpy(elements, values.data(), written * sizeof(T));
            return DnnStatus::success;
        };
        using enum DnnAttribute;
        if (descriptor->kind == Kind::heuristics && attribute == heuristics_results)
            return give(*descriptor, Kind::engine_config, asked, count, elements);
        if (descriptor->kind == Kind::engine_config && attribute == engine_config_engine)
            return give(*descriptor, Kind::engine, asked, count, elements);
        if (descriptor->kind == Kind::engine && attribute == engine_notes)
            return answer(DnnAttributeType::numerical_note, descriptor->engines[0].notes());
        if (descriptor->kind == Kind::engine && attribute == engine_number)
            return answer(DnnAttributeType::int64, std::vector{descriptor->engines[0].number});
        if (descriptor->kind == Kind::plan && attribute == plan_workspace)
            return answer(DnnAttributeType::int64,
                          std::vector{static_cast<std::int64_t>(descriptor->engines[0].workspace)});
        return refuse({DnnStatus::not_supported, "the attribute is not offered"});
    }

    DnnStatus execute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
        if (!has(handle)) return refuse({DnnStatus::bad_param, "the handle is not known"});
        if (!descriptors_.contains(plan) || !descriptors_.contains(pack)) return refuse(unknown);
        if (plan->kind != Kind::plan || pack->kind != Kind::variant_pack)
            return refuse({DnnStatus::descriptor_type, "a plan and a variant pack are needed"});
        if (!plan->finalized || !pack->finalized)
            return refuse({DnnStatus::not_finalized, "a descriptor is not finalized"});
        ConvolutionJob job = plan->job;
        job.dtype = dtype_of(plan->arguments[0].type);
        job.engine = plan->engines[0].kind;
        if (const DnnRefusal refusal = take_addresses(*plan, *pack, job);
            refusal.status != DnnStatus::success)
            return refuse(refusal);
        return run_(handle->stream, job) == Result::success
                   ? DnnStatus::success
                   : refuse({DnnStatus::execution_failed, "the handle's stream is not known"});
    }

    const std::string& last_words() const { return last_words_; }

  private:
    static inline const DnnRefusal unknown = {DnnStatus::bad_param, "a descriptor is not known"};

    DnnStatus refuse(const DnnRefusal& refusal) {
        last_words_ = refusal.words;
        return refusal.status;
    }
    bool has(DnnHandle handle) const {
        return std::ranges::any_of(handles_, [&](const auto& one) { return one.get() == handle; });
    }

    /// Makes descriptors that were created into those of engines, or of their configurations.
    DnnStatus give(const DnnDescriptorOf& from, Kind kind, std::int64_t asked, std::int64_t* count,
                   void* elements) {
        const std::vector<DnnEngine> engines = from.engines;
        if (count) *count = static_cast<std::int64_t>(engines.size());
        for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(asked), engines.size()); ++i) {
            DnnDescriptor to = static_cast<DnnDescriptor*>(elements)[i];
            if (!descriptors_.contains(to) || to->kind != kind)
                return refuse({DnnStatus::descriptor_type, "elements are to be created for their kind"});
            to->job = from.job;
            to->arguments = from.arguments;
            to->engines = {engines[i]};
            to->finalized = true;
        }
        if (count) *count = std::min(*count, asked > 0 ? asked : *count);
        return DnnStatus::success;
    }

    /// The address of each tensor, where the pack has it.
    DnnRefusal take_addresses(const DnnDescriptorOf& plan, const DnnDescriptorOf& pack, ConvolutionJob& job) {
        const auto ids = pack.all<std::int64_t>(DnnAttribute::pack_ids);
        const auto pointers = pack.all<DevicePtr>(DnnAttribute::pack_pointers);
        DevicePtr* const places[] = {&job.x, &job.w, &job.y, &job.bias};
        for (std::size_t i = 0; i < plan.arguments.size(); ++i) {
            const auto found = std::ranges::find(ids, plan.arguments[i].id);
            if (found == ids.end()) return {DnnStatus::bad_param, "a tensor is not in the variant pack"};
            *places[i] = pointers[static_cast<std::size_t>(found - ids.begin())];
            if (*places[i] == 0) return {DnnStatus::null_pointer, "a tensor's address is null"};
            if (*places[i] % static_cast<DevicePtr>(plan.arguments[i].alignment) != 0)
                return {DnnStatus::misaligned_pointer, "a tensor is not aligned as its descriptor says"};
        }
        job.workspace_bytes = plan.engines[0].workspace;
        if (job.workspace_bytes == 0) return {};
        if (pack.has(DnnAttribute::pack_workspace))
            job.workspace = pack.one<DevicePtr>(DnnAttribute::pack_workspace);
        if (job.workspace == 0) return {DnnStatus::null_pointer, "the plan needs a workspace"};
        return {};
    }

    RunConvolution run_;
    std::vector<std::unique_ptr<DnnHandleOf>> handles_;
    std::map<DnnDescriptor, std::unique_ptr<DnnDescriptorOf>> descriptors_;
    std::string last_words_;
};

struct NamedDnnStatus {
    DnnStatus status;
    const char* name;
};

constexpr NamedDnnStatus dnn_statuses[] = {
    {DnnStatus::success, "CUDNN_STATUS_SUCCESS"},
    {DnnStatus::not_initialized, "CUDNN_STATUS_NOT_INITIALIZED"},
    {DnnStatus::bad_param, "CUDNN_STATUS_BAD_PARAM"},
    {DnnStatus::null_pointer, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
    {DnnStatus::misaligned_pointer, "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER"},
    {DnnStatus::not_finalized, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
    {DnnStatus::size_insufficient, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
    {DnnStatus::shape_mismatch, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
    {DnnStatus::attribute_type, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"},
    {DnnStatus::descriptor_type, "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE"},
    {DnnStatus::not_supported, "CUDNN_STATUS_NOT_SUPPORTED"},
    {DnnStatus::unsupported_graph, "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"},
    {DnnStatus::unsupported_data_type, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"},
    {DnnStatus::execution_failed, "CUDNN_STATUS_EXECUTION_FAILED"},
};

}  // namespace

Cudnn make_emulated_cudnn(RunConvolution run) {
    const auto dnn = std::make_shared<EmulatedDnn>(std::move(run));
    Cudnn table;
    table.get_version = [] { return std::size_t{91900}; };
    table.get_error_string = [](DnnStatus status) {
        const auto* const found = std::ranges::find(dnn_statuses, status, &NamedDnnStatus::status);
        return found == std::end(dnn_statuses) ? "an unknown status" : found->name;
    };
    table.get_last_error_string = [dnn](char* message, std::size_t most) {
        if (most > 0) message[dnn->last_words().copy(message, most - 1)] = 0;
    };
    table.create = [dnn](DnnHandle* handle) { return dnn->create(handle); };
    table.destroy = [dnn](DnnHandle handle) { return dnn->destroy(handle); };
    table.set_stream = [dnn](DnnHandle handle, Stream stream) { return dnn->set_stream(handle, stream); };
    table.create_descriptor = [dnn](Kind kind, DnnDescriptor* to) { return dnn->create(kind, to); };
    table.destroy_descriptor = [dnn](DnnDescriptor descriptor) { return dnn->destroy(descriptor); };
    table.finalize = [dnn](DnnDescriptor descriptor) { return dnn->finalize(descriptor); };
    table.set_attribute = [dnn](DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type,
                                std::int64_t count, const void* elements) {
        return dnn->set(descriptor, attribute, type, count, elements);
    };
    table.get_attribute = [dnn](DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type,
                                std::int64_t asked, std::int64_t* count, void* elements) {
        return dnn->get(descriptor, attribute, type, asked, count, elements);
    };
    table.execute = [dnn](DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
        return dnn->execute(handle, plan, pack);
    };
    return table;
}

}  // namespace mantissa::cuda
