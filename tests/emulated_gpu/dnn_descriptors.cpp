#include "tests/emulated_gpu/dnn_descriptors.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::inline v0::cuda {

namespace {

using enum DnnAttribute;
using Kind = DnnDescriptorKind;
using List = std::vector<std::int64_t>;

enum class Needed : bool { no, yes };

struct AttributeRule {
    Kind kind;
    DnnAttribute attribute;
    DnnAttributeType type;
    std::int64_t most = 1;  ///< elements
    Needed needed = Needed::yes;
};

constexpr std::int64_t max_dimensions = 8, max_pointers = 64;

constexpr AttributeRule rules[] = {
    {Kind::tensor, tensor_type, DnnAttributeType::data_type},
    {Kind::tensor, tensor_alignment, DnnAttributeType::int64},
    {Kind::tensor, tensor_dimensions, DnnAttributeType::int64, max_dimensions},
    {Kind::tensor, tensor_strides, DnnAttributeType::int64, max_dimensions},
    {Kind::tensor, tensor_id, DnnAttributeType::int64},
    {Kind::tensor, tensor_is_virtual, DnnAttributeType::boolean, 1, Needed::no},
    {Kind::convolution, convolution_precision, DnnAttributeType::data_type},
    {Kind::convolution, convolution_mode, DnnAttributeType::convolution_mode},
    {Kind::convolution, convolution_spatial_dimensions, DnnAttributeType::int64},
    {Kind::convolution, convolution_dilations, DnnAttributeType::int64, max_dimensions},
    {Kind::convolution, convolution_strides, DnnAttributeType::int64, max_dimensions},
    {Kind::convolution, convolution_pre_paddings, DnnAttributeType::int64, max_dimensions},
    {Kind::convolution, convolution_post_paddings, DnnAttributeType::int64, max_dimensions},
    {Kind::pointwise, pointwise_mode, DnnAttributeType::pointwise_mode},
    {Kind::pointwise, pointwise_precision, DnnAttributeType::data_type},
    {Kind::forward, forward_alpha, DnnAttributeType::float32},
    {Kind::forward, forward_beta, DnnAttributeType::float32},
    {Kind::forward, forward_convolution, DnnAttributeType::descriptor},
    {Kind::forward, forward_x, DnnAttributeType::descriptor},
    {Kind::forward, forward_w, DnnAttributeType::descriptor},
    {Kind::forward, forward_y, DnnAttributeType::descriptor},
    {Kind::backward_data, data_alpha, DnnAttributeType::float32},
    {Kind::backward_data, data_beta, DnnAttributeType::float32},
    {Kind::backward_data, data_convolution, DnnAttributeType::descriptor},
    {Kind::backward_data, data_dx, DnnAttributeType::descriptor},
    {Kind::backward_data, data_w, DnnAttributeType::descriptor},
    {Kind::backward_data, data_dy, DnnAttributeType::descriptor},
    {Kind::backward_filter, filter_alpha, DnnAttributeType::float32},
    {Kind::backward_filter, filter_beta, DnnAttributeType::float32},
    {Kind::backward_filter, filter_convolution, DnnAttributeType::descriptor},
    {Kind::backward_filter, filter_x, DnnAttributeType::descriptor},
    {Kind::backward_filter, filter_dw, DnnAttributeType::descriptor},
    {Kind::backward_filter, filter_dy, DnnAttributeType::descriptor},
    {Kind::pointwise_operation, operation_pointwise, DnnAttributeType::descriptor},
    {Kind::pointwise_operation, operation_x, DnnAttributeType::descriptor},
    {Kind::pointwise_operation, operation_b, DnnAttributeType::descriptor},
    {Kind::pointwise_operation, operation_y, DnnAttributeType::descriptor},
    {Kind::graph, graph_handle, DnnAttributeType::handle, 1, Needed::no},
    {Kind::graph, graph_operations, DnnAttributeType::descriptor, max_pointers},
    {Kind::heuristics, heuristics_graph, DnnAttributeType::descriptor},
    {Kind::heuristics, heuristics_mode, DnnAttributeType::heuristics_mode},
    {Kind::plan, plan_handle, DnnAttributeType::handle, 1, Needed::no},
    {Kind::plan, plan_engine_config, DnnAttributeType::descriptor},
    {Kind::variant_pack, pack_ids, DnnAttributeType::int64, max_pointers},
    {Kind::variant_pack, pack_pointers, DnnAttributeType::void_pointer, max_pointers},
    {Kind::variant_pack, pack_workspace, DnnAttributeType::void_pointer, 1, Needed::no},
};

std::size_t bytes_of(DnnAttributeType type) {
    switch (type) {
        case DnnAttributeType::handle:
        case DnnAttributeType::int64:
        case DnnAttributeType::void_pointer:
        case DnnAttributeType::descriptor:
            return 8;
        case DnnAttributeType::boolean:
            return 1;
        default:
            return 4;
    }
}

DnnRefusal bad(const char* words) { return {DnnStatus::bad_param, words}; }

/// Elements that lie one behind another, in whatever order.
bool is_packed(const DnnDescriptorOf& tensor) {
    const List extents = tensor.all<std::int64_t>(tensor_dimensions),
               strides = tensor.all<std::int64_t>(tensor_strides);
    std::int64_t last = 0, elements = 1;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        last += (extents[i] - 1) * strides[i];
        elements *= extents[i];
    }
    return last + 1 == elements;
}

DnnRefusal finish_tensor(const DnnDescriptorOf& tensor) {
    const List extents = tensor.all<std::int64_t>(tensor_dimensions),
               strides = tensor.all<std::int64_t>(tensor_strides);
    const auto alignment = tensor.one<std::int64_t>(tensor_alignment);
    if (extents.size() != 4 || strides.size() != 4) return bad("a tensor has four dimensions and strides");
    for (const std::int64_t number : extents)
        if (number < 1) return bad("a dimension is less than 1");
    for (const std::int64_t number : strides)
        if (number < 1) return bad("a stride is less than 1");
    if (alignment < 1 || (alignment & (alignment - 1)) != 0) return bad("an alignment is no power of two");
    const auto type = tensor.one<DnnType>(tensor_type);
    if (type != DnnType::f32 && type != DnnType::f16 && type != DnnType::bf16)
        return {DnnStatus::unsupported_data_type, "only float, half and bfloat16 are offered"};
    return {};
}

DnnRefusal finish_convolution(const DnnDescriptorOf& of) {
    if (of.one<std::int64_t>(convolution_spatial_dimensions) != 2)
        return {DnnStatus::not_supported, "only two spatial dimensions are offered"};
    for (const DnnAttribute attribute :
         {convolution_dilations, convolution_strides, convolution_pre_paddings, convolution_post_paddings}) {
        const bool is_padding =
            attribute == convolution_pre_paddings || attribute == convolution_post_paddings;
        const List numbers = of.all<std::int64_t>(attribute);
        if (numbers.size() != 2) return bad("an attribute has not a number for each spatial dimension");
        for (const std::int64_t number : numbers)
            if (number < (is_padding ? 0 : 1)) return bad("a padding, stride or dilation is too small");
    }
    if (of.one<DnnConvolutionMode>(convolution_mode) != DnnConvolutionMode::cross_correlation)
        return {DnnStatus::not_supported, "only cross-correlation is offered"};
    if (of.one<DnnType>(convolution_precision) != DnnType::f32)
        return {DnnStatus::not_supported, "only sums in float are offered"};
    return {};
}

struct OperationAttributes {
    Kind kind;
    codegen::ConvolutionResult makes;
    DnnAttribute convolution, x, w, y, alpha, beta;
};
constexpr OperationAttributes operations[] = {
    {Kind::forward, codegen::ConvolutionResult::output, forward_convolution, forward_x, forward_w, forward_y,
     forward_alpha, forward_beta},
    {Kind::backward_data, codegen::ConvolutionResult::gradient_of_images, data_convolution, data_dx, data_w,
     data_dy, data_alpha, data_beta},
    {Kind::backward_filter, codegen::ConvolutionResult::gradient_of_filter, filter_convolution, filter_x,
     filter_dw, filter_dy, filter_alpha, filter_beta},
};

const OperationAttributes* attributes_of_operation(Kind kind) {
    const auto* const found = std::ranges::find(operations, kind, &OperationAttributes::kind);
    return found == std::end(operations) ? nullptr : found;
}

const DnnDescriptorOf& part(const DnnDescriptorOf& of, DnnAttribute attribute) {
    return *of.one<DnnDescriptor>(attribute);
}

/// The sizes that the descriptors of an operation have, where they are a convolution's.
DnnRefusal finish_operation(DnnDescriptorOf& operation) {
    const OperationAttributes& own = *attributes_of_operation(operation.kind);
    if (operation.one<float>(own.alpha) != 1 || operation.one<float>(own.beta) != 0)
        return {DnnStatus::not_supported, "only alpha 1 and beta 0 are offered"};
    const DnnDescriptorOf& convolution = part(operation, own.convolution);
    const DnnTensors tensors = tensors_of(operation);
    for (const DnnDescriptorOf* tensor : {tensors.x, tensors.w, tensors.y})
        if (!is_packed(*tensor)) return bad("a tensor's elements do not lie one behind another");
    const List x = tensors.x->all<std::int64_t>(tensor_dimensions),
               w = tensors.w->all<std::int64_t>(tensor_dimensions),
               y = tensors.y->all<std::int64_t>(tensor_dimensions);
    const auto axis = [&](std::size_t i) {
        const auto number = [&](DnnAttribute attribute) {
            return convolution.all<std::int64_t>(attribute)[i];
        };
        return ConvolutionAxis{.image = x[2 + i],
                               .output = y[2 + i],
                               .filter = w[2 + i],
                               .stride = number(convolution_strides),
                               .dilation = number(convolution_dilations),
                               .before = number(convolution_pre_paddings),
                               .behind = number(convolution_post_paddings)};
    };
    Convolution of{
        .images = x[0], .channels = x[1], .filters = w[0], .vertical = axis(0), .horizontal = axis(1)};
    if (x[1] % w[1] != 0 || x[0] != y[0] || w[0] != y[1])
        return {DnnStatus::shape_mismatch, "the tensors' dimensions do not fit"};
    of.groups = x[1] / w[1];
    if (w[0] % of.groups != 0) return {DnnStatus::shape_mismatch, "the groups do not divide the filters"};
    for (const ConvolutionAxis& one : {of.vertical, of.horizontal}) {
        const std::int64_t covered = (one.filter - 1) * one.dilation + 1;
        const std::int64_t room = one.image + one.before + one.behind - covered;
        if (room < 0 || room / one.stride + 1 != one.output)
            return {DnnStatus::shape_mismatch, "the output's dimensions are not those of the convolution"};
    }
    operation.job.makes = own.makes;
    operation.job.of = of;
    return {};
}

DnnDescriptorOf::Argument argument_of(const DnnDescriptorOf& tensor) {
    const List extents = tensor.all<std::int64_t>(tensor_dimensions),
               strides = tensor.all<std::int64_t>(tensor_strides);
    const List nhwc{extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]};
    bool is_nhwc = true;
    for (std::size_t i = 0; i < nhwc.size(); ++i) is_nhwc &= extents[i] == 1 || strides[i] == nhwc[i];
    return {.id = tensor.one<std::int64_t>(tensor_id),
            .alignment = tensor.one<std::int64_t>(tensor_alignment),
            .type = tensor.one<DnnType>(tensor_type),
            .is_nhwc = is_nhwc};
}

DnnRefusal finish_graph(DnnDescriptorOf& graph) {
    const DnnOperations found = operations_of(graph);
    if (!found.convolution)
        return {DnnStatus::unsupported_graph, "only convolutions, and one with a bias, are offered"};
    graph.job = found.convolution->job;
    DnnTensors tensors = tensors_of(*found.convolution);
    if (found.addition) tensors.y = &part(*found.addition, operation_y);
    for (const DnnDescriptorOf* tensor : {tensors.x, tensors.w, tensors.y})
        graph.arguments.push_back(argument_of(*tensor));
    if (found.addition) graph.arguments.push_back(argument_of(part(*found.addition, operation_b)));
    return {};
}

DnnRefusal finish_pack(const DnnDescriptorOf& pack) {
    const List ids = pack.all<std::int64_t>(pack_ids);
    if (ids.size() != pack.all<void*>(pack_pointers).size())
        return bad("there are not as many ids as pointers");
    for (const std::int64_t id : ids)
        if (std::ranges::count(ids, id) > 1) return bad("an id stands there twice");
    return {};
}

}  // namespace

DnnTensors tensors_of(const DnnDescriptorOf& operation) {
    const OperationAttributes& own = *attributes_of_operation(operation.kind);
    return {&part(operation, own.x), &part(operation, own.w), &part(operation, own.y)};
}

DnnOperations operations_of(const DnnDescriptorOf& graph) {
    const auto all = graph.all<DnnDescriptor>(graph_operations);
    if (all.empty() || all.size() > 2 || !attributes_of_operation(all[0]->kind)) return {};
    const DnnTensors tensors = tensors_of(*all[0]);
    const auto is_virtual = [](const DnnDescriptorOf& tensor) {
        return tensor.has(tensor_is_virtual) && tensor.one<std::uint8_t>(tensor_is_virtual) != 0;
    };
    if (all.size() == 1) {
        const bool in_memory = !is_virtual(*tensors.x) && !is_virtual(*tensors.w) && !is_virtual(*tensors.y);
        return in_memory ? DnnOperations{all[0]} : DnnOperations{};
    }
    if (all[0]->kind != Kind::forward || all[1]->kind != Kind::pointwise_operation) return {};
    const DnnDescriptorOf &added = part(*all[1], operation_x), &bias = part(*all[1], operation_b),
                          &sum = part(*all[1], operation_y);
    const List y = tensors.y->all<std::int64_t>(tensor_dimensions);
    const bool fits = &added == tensors.y && is_virtual(added) && !is_virtual(bias) && !is_virtual(sum) &&
                      sum.all<std::int64_t>(tensor_dimensions) == y &&
                      bias.all<std::int64_t>(tensor_dimensions) == List{1, y[1], 1, 1};
    return fits ? DnnOperations{all[0], all[1]} : DnnOperations{};
}

DnnRefusal set_attribute(DnnDescriptorOf& descriptor, DnnAttribute attribute, DnnAttributeType type,
                         std::int64_t count, const void* elements) {
    if (descriptor.finalized) return bad("the descriptor is finalized");
    const auto* const rule = std::ranges::find_if(rules, [&](const AttributeRule& one) {
        return one.kind == descriptor.kind && one.attribute == attribute;
    });
    if (rule == std::end(rules)) return bad("the descriptor has no such attribute");
    if (rule->type != type) return {DnnStatus::attribute_type, "the attribute is of another type"};
    if (count < 1 || count > rule->most) return bad("the attribute takes another number of elements");
    if (!elements) return {DnnStatus::null_pointer, "there are no elements"};
    DnnDescriptorOf::Elements own{.count = count};
    own.bytes.resize(static_cast<std::size_t>(count) * bytes_of(type));
    std::memcpy(own.bytes.data(), elements, own.bytes.size());
    if (type == DnnAttributeType::descriptor)
        for (std::int64_t i = 0; i < count; ++i) {
            DnnDescriptor part = nullptr;
            std::memcpy(&part, own.bytes.data() + i * 8, 8);
            if (!part) return {DnnStatus::null_pointer, "a descriptor is null"};
            if (!part->finalized) return {DnnStatus::not_finalized, "a descriptor is not finalized"};
        }
    descriptor.attributes[attribute] = std::move(own);
    return {};
}

DnnRefusal finish(DnnDescriptorOf& descriptor) {
    if (descriptor.finalized) return bad("the descriptor is finalized");
    bool known = false;
    for (const AttributeRule& rule : rules) {
        if (rule.kind != descriptor.kind) continue;
        known = true;
        if (rule.needed == Needed::yes && !descriptor.has(rule.attribute))
            return {DnnStatus::bad_param,
                    fmt::format("attribute {} is missing", static_cast<int>(rule.attribute))};
    }
    if (!known) return {DnnStatus::not_supported, "heuristics alone make such descriptors here"};
    DnnRefusal refusal;
    switch (descriptor.kind) {
        case Kind::tensor:
            refusal = finish_tensor(descriptor);
            break;
        case Kind::convolution:
            refusal = finish_convolution(descriptor);
            break;
        case Kind::forward:
        case Kind::backward_data:
        case Kind::backward_filter:
            refusal = finish_operation(descriptor);
            break;
        case Kind::pointwise:
            if (descriptor.one<DnnPointwiseMode>(pointwise_mode) != DnnPointwiseMode::add)
                refusal = {DnnStatus::not_supported, "only addition is offered"};
            break;
        case Kind::graph:
            refusal = finish_graph(descriptor);
            break;
        case Kind::heuristics:
            descriptor.job = part(descriptor, heuristics_graph).job;
            descriptor.arguments = part(descriptor, heuristics_graph).arguments;
            break;
        case Kind::plan:
            descriptor.job = part(descriptor, plan_engine_config).job;
            descriptor.arguments = part(descriptor, plan_engine_config).arguments;
            descriptor.engines = part(descriptor, plan_engine_config).engines;
            break;
        case Kind::variant_pack:
            refusal = finish_pack(descriptor);
            break;
        default:
            break;
    }
    descriptor.finalized = refusal.status == DnnStatus::success;
    return refusal;
}

std::vector<DnnNote> DnnEngine::notes() const {
    switch (kind) {
        case EngineKind::plain:
        case EngineKind::symmetric:
            return {};
        case EngineKind::tensor_core:
            return {DnnNote::tensor_core};
        case EngineKind::winograd:
            return {DnnNote::winograd};
        case EngineKind::nondeterministic:
            return {DnnNote::nondeterministic};
    }
    return {};
}

}  // namespace mantissa::cuda
