#include "mantissa/device/cuda/kernels/dnn_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::on_cuda {

namespace {

using cuda::DnnAttribute;
using cuda::DnnAttributeType;
using cuda::DnnDescriptorKind;
using cuda::DnnNote;
using cuda::DnnStatus;
using enum cuda::DnnAttribute;
using List = std::vector<std::int64_t>;

/// Engines for tensor cores read so many bytes at a time, and are not offered for less.
constexpr std::int64_t tensor_alignment_bytes = 16;
/// A plan's scratch is shared by all kernels of a step. Of ResNet50, VGG19 and DenseNet121 at 128 images
/// the engines that are taken of cuDNN 9.19's ask for 3.1 GB at most, in FP32 (bench/cudnn_engines.py).
constexpr std::int64_t max_dnn_workspace = std::int64_t{4} << 30;
/// Configurations that are looked at.
constexpr std::size_t max_configurations = 64;

/// A tensor's number among a plan's.
enum TensorId : std::int64_t { id_of_x = 1, id_of_w, id_of_y, id_of_bias, id_of_sum };

/// Freed with it.
class OwnDescriptor {
  public:
    OwnDescriptor(const cuda::Cudnn& dnn, DnnDescriptorKind kind) : dnn_(dnn) {
        require(dnn_, dnn_.create_descriptor(kind, &handle_), "cuDNN's descriptor");
    }
    ~OwnDescriptor() { dnn_.destroy_descriptor(handle_); }
    OwnDescriptor(const OwnDescriptor&) = delete;
    OwnDescriptor& operator=(const OwnDescriptor&) = delete;

    template <class T>
    OwnDescriptor& set(DnnAttribute attribute, DnnAttributeType type, const std::vector<T>& elements) {
        require(dnn_,
                dnn_.set_attribute(handle_, attribute, type, static_cast<std::int64_t>(elements.size()),
                                   elements.data()),
                fmt::format("attribute {} of cuDNN's descriptor", static_cast<int>(attribute)));
        return *this;
    }
    OwnDescriptor& set(DnnAttribute attribute, const List& numbers) {
        return set(attribute, DnnAttributeType::int64, numbers);
    }
    OwnDescriptor& set(DnnAttribute attribute, const OwnDescriptor& part) {
        return set(attribute, DnnAttributeType::descriptor, std::vector{part.handle_});
    }
    OwnDescriptor& set(DnnAttribute attribute, cuda::DnnType type) {
        return set(attribute, DnnAttributeType::data_type, std::vector{type});
    }
    OwnDescriptor& set(DnnAttribute attribute, float number) {
        return set(attribute, DnnAttributeType::float32, std::vector{number});
    }
    OwnDescriptor& set(DnnAttribute attribute, cuda::DnnHandle handle) {
        return set(attribute, DnnAttributeType::handle, std::vector{handle});
    }

    DnnStatus finalize() const { return dnn_.finalize(handle_); }
    cuda::DnnDescriptor handle() const { return handle_; }

  private:
    const cuda::Cudnn& dnn_;
    cuda::DnnDescriptor handle_ = nullptr;
};

cuda::DnnType dnn_type(DType dtype) {
    return dtype == DType::f32   ? cuda::DnnType::f32
           : dtype == DType::f16 ? cuda::DnnType::f16
                                 : cuda::DnnType::bf16;
}

/// How cuDNN calls the attributes of the three operations.
struct OperationNames {
    DnnDescriptorKind kind;
    DnnAttribute convolution, x, w, y, alpha, beta;
};
OperationNames names_of(codegen::ConvolutionResult makes) {
    switch (makes) {
        case codegen::ConvolutionResult::gradient_of_images:
            return {DnnDescriptorKind::backward_data,
                    data_convolution,
                    data_dx,
                    data_w,
                    data_dy,
                    data_alpha,
                    data_beta};
        case codegen::ConvolutionResult::gradient_of_filter:
            return {DnnDescriptorKind::backward_filter,
                    filter_convolution,
                    filter_x,
                    filter_dw,
                    filter_dy,
                    filter_alpha,
                    filter_beta};
        default:
            return {DnnDescriptorKind::forward,
                    forward_convolution,
                    forward_x,
                    forward_w,
                    forward_y,
                    forward_alpha,
                    forward_beta};
    }
}

/// A graph of the convolution, with the descriptors that it is made of.
class DnnGraph {
  public:
    DnnGraph(const Context& context, const DnnConvolution& of) : context_(context), of_(of) {}

    /// The library's words where it does not take it.
    std::string make() {
        const Shape x = of_.of.x_shape(), w = of_.of.filter_shape(), y = of_.of.y_shape();
        OwnDescriptor &images = tensor(id_of_x, {x[0], x[3], x[1], x[2]}),
                      &filter = tensor(id_of_w, {w[3], w[2], w[0], w[1]}),
                      &outputs = tensor(of_.bias ? id_of_sum : id_of_y, {y[0], y[3], y[1], y[2]});
        const OperationNames names = names_of(of_.makes);
        OwnDescriptor& operation = add(names.kind)
                                       .set(names.convolution, convolution())
                                       .set(names.x, images)
                                       .set(names.w, filter)
                                       .set(names.y, outputs)
                                       .set(names.alpha, 1.0f)
                                       .set(names.beta, 0.0f);
        finish(operation);
        std::vector<cuda::DnnDescriptor> operations{operation.handle()};
        if (of_.bias) operations.push_back(addition(outputs, {y[0], y[3], y[1], y[2]}).handle());
        graph_ = &add(DnnDescriptorKind::graph)
                      .set(graph_operations, DnnAttributeType::descriptor, operations)
                      .set(graph_handle, context_.dnn_handle);
        finish(*graph_);
        return refusal_;
    }

    const OwnDescriptor& graph() const { return *graph_; }
    OwnDescriptor& add(DnnDescriptorKind kind) { return kept_.emplace_back(*context_.dnn, kind); }

  private:
    void finish(const OwnDescriptor& descriptor) {
        const DnnStatus status = descriptor.finalize();
        if (status != DnnStatus::success && refusal_.empty()) refusal_ = words_of(*context_.dnn, status);
    }

    /// Adds a tensor [N, C, H, W] whose channels lie innermost.
    OwnDescriptor& tensor(TensorId id, const List& nchw) {
        const List strides{nchw[1] * nchw[2] * nchw[3], 1, nchw[3] * nchw[1], nchw[1]};
        const bool is_virtual = id == id_of_sum;
        OwnDescriptor& made = add(DnnDescriptorKind::tensor)
                                  .set(tensor_type, is_virtual ? cuda::DnnType::f32 : dnn_type(of_.dtype))
                                  .set(tensor_dimensions, nchw)
                                  .set(tensor_strides, strides)
                                  .set(tensor_id, List{id})
                                  .set(tensor_alignment, List{tensor_alignment_bytes});
        if (is_virtual) made.set(tensor_is_virtual, DnnAttributeType::boolean, std::vector{std::uint8_t{1}});
        finish(made);
        return made;
    }

    OwnDescriptor& convolution() {
        const ConvolutionAxis &rows = of_.of.vertical, &columns = of_.of.horizontal;
        OwnDescriptor& made = add(DnnDescriptorKind::convolution)
                                  .set(convolution_precision, cuda::DnnType::f32)
                                  .set(convolution_mode, DnnAttributeType::convolution_mode,
                                       std::vector{cuda::DnnConvolutionMode::cross_correlation})
                                  .set(convolution_spatial_dimensions, List{2})
                                  .set(convolution_dilations, List{rows.dilation, columns.dilation})
                                  .set(convolution_strides, List{rows.stride, columns.stride})
                                  .set(convolution_pre_paddings, List{rows.before, columns.before})
                                  .set(convolution_post_paddings, List{rows.behind, columns.behind});
        finish(made);
        return made;
    }

    /// The addition of the bias to sums that are never in memory.
    OwnDescriptor& addition(const OwnDescriptor& sums, const List& nchw) {
        OwnDescriptor& mode = add(DnnDescriptorKind::pointwise)
                                  .set(pointwise_mode, DnnAttributeType::pointwise_mode,
                                       std::vector{cuda::DnnPointwiseMode::add})
                                  .set(pointwise_precision, cuda::DnnType::f32);
        finish(mode);
        OwnDescriptor& made = add(DnnDescriptorKind::pointwise_operation)
                                  .set(operation_pointwise, mode)
                                  .set(operation_x, sums)
                                  .set(operation_b, tensor(id_of_bias, {1, nchw[1], 1, 1}))
                                  .set(operation_y, tensor(id_of_y, nchw));
        finish(made);
        return made;
    }

    const Context& context_;
    const DnnConvolution& of_;
    std::deque<OwnDescriptor> kept_;
    OwnDescriptor* graph_ = nullptr;
    std::string refusal_;
};

const char* name_of(DnnNote note) {
    switch (note) {
        case DnnNote::tensor_core:
            return "TF32";
        case DnnNote::down_converts_inputs:
            return "rounded operands";
        case DnnNote::reduced_precision_reduction:
            return "sums of less than FP32";
        case DnnNote::fft:
            return "Fourier transforms";
        case DnnNote::nondeterministic:
            return "sums in any order";
        default:
            return "Winograd's transforms";
    }
}

/// A note of an engine that says why it may not be used. FP32 on tensor cores is TF32.
bool is_allowed(DnnNote note, const DnnConvolution& of) {
    switch (note) {
        case DnnNote::tensor_core:
            return of.dtype != DType::f32 || of.tf32;
        case DnnNote::down_converts_inputs:
        case DnnNote::reduced_precision_reduction:
        case DnnNote::fft:
        case DnnNote::nondeterministic:
            return false;
        default:
            // Winograd's and its tile sizes; behind them only that NaN is carried on.
            return static_cast<int>(note) > 8;
    }
}

class PlannedConvolution final : public DnnPlan {
  public:
    PlannedConvolution(const Context& context, const DnnConvolution& of)
        : context_(context), of_(of), graph_(context, of_) {}

    /// Why there is no plan; empty if there is one.
    std::string find() {
        if (std::string refusal = graph_.make(); !refusal.empty())
            return "cuDNN does not take it: " + refusal;
        for (const auto mode : {cuda::DnnHeuristics::best, cuda::DnnHeuristics::fallback})
            if (look_in(mode)) return "";
        if (seen_ == 0) return "cuDNN has no engine for it";
        return fmt::format("none of cuDNN's {} engine configurations may run it; they have {}{}", seen_,
                           fmt::join(refused_, ", "), said_.empty() ? "" : "; cuDNN says " + said_);
    }

    std::int64_t workspace() const override { return workspace_; }
    std::string text() const override { return fmt::format("engine {} of {}", engine_, context_.dnn->name); }

    void queue(const Addresses& addresses) override {
        const cuda::Cudnn& dnn = *context_.dnn;
        List ids{id_of_x, id_of_w, id_of_y};
        std::vector<cuda::DevicePtr> pointers{addresses.x, addresses.w, addresses.y};
        if (of_.bias) {
            ids.push_back(id_of_bias);
            pointers.push_back(addresses.bias);
        }
        for (const cuda::DevicePtr pointer : pointers)
            check(pointer % tensor_alignment_bytes == 0, "tensors of a convolution lie at multiples of 16");
        OwnDescriptor pack(dnn, DnnDescriptorKind::variant_pack);
        pack.set(pack_ids, ids).set(pack_pointers, DnnAttributeType::void_pointer, pointers);
        if (workspace_ > 0)
            pack.set(pack_workspace, DnnAttributeType::void_pointer, std::vector{addresses.workspace});
        require(dnn, pack.finalize(), "cuDNN's variant pack");
        const DnnStatus status = dnn.execute(context_.dnn_handle, plan_->handle(), pack.handle());
        if (status == DnnStatus::success) return;
        // A GPU that had a fault says so itself.
        require(context_.driver, context_.driver.stream_query(context_.work), "cudnnBackendExecute");
        require(dnn, status, "cudnnBackendExecute");
    }

  private:
    bool look_in(cuda::DnnHeuristics mode) {
        const cuda::Cudnn& dnn = *context_.dnn;
        OwnDescriptor& heuristics =
            graph_.add(DnnDescriptorKind::heuristics)
                .set(heuristics_graph, graph_.graph())
                .set(heuristics_mode, DnnAttributeType::heuristics_mode, std::vector{mode});
        if (const DnnStatus status = heuristics.finalize(); status != DnnStatus::success) return said(status);
        std::int64_t offered = 0;
        if (dnn.get_attribute(heuristics.handle(), heuristics_results, DnnAttributeType::descriptor, 0,
                              &offered, nullptr) != DnnStatus::success)
            return false;
        std::vector<OwnDescriptor*> all;
        std::vector<cuda::DnnDescriptor> handles;
        for (std::size_t i = 0; i < std::min(max_configurations, static_cast<std::size_t>(offered)); ++i) {
            all.push_back(&graph_.add(DnnDescriptorKind::engine_config));
            handles.push_back(all.back()->handle());
        }
        if (handles.empty()) return false;
        const DnnStatus status =
            dnn.get_attribute(heuristics.handle(), heuristics_results, DnnAttributeType::descriptor,
                              static_cast<std::int64_t>(handles.size()), &offered, handles.data());
        if (status != DnnStatus::success) return said(status);
        for (std::size_t i = 0; i < std::min(all.size(), static_cast<std::size_t>(offered)); ++i)
            if (take(*all[i])) return true;
        return false;
    }

    bool take(const OwnDescriptor& configuration) {
        const cuda::Cudnn& dnn = *context_.dnn;
        ++seen_;
        OwnDescriptor& engine = graph_.add(DnnDescriptorKind::engine);
        cuda::DnnDescriptor handle = engine.handle();
        std::int64_t count = 0;
        if (const DnnStatus status = dnn.get_attribute(configuration.handle(), engine_config_engine,
                                                       DnnAttributeType::descriptor, 1, &count, &handle);
            status != DnnStatus::success)
            return said(status);
        std::array<DnnNote, 16> notes = {};
        if (const DnnStatus status =
                dnn.get_attribute(handle, engine_notes, DnnAttributeType::numerical_note,
                                  static_cast<std::int64_t>(notes.size()), &count, notes.data());
            status != DnnStatus::success)
            return said(status);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count) && i < notes.size(); ++i)
            if (!is_allowed(notes[i], of_)) {
                refused_.insert(name_of(notes[i]));
                return false;
            }
        OwnDescriptor& plan = graph_.add(DnnDescriptorKind::plan)
                                  .set(plan_engine_config, configuration)
                                  .set(plan_handle, context_.dnn_handle);
        if (const DnnStatus status = plan.finalize(); status != DnnStatus::success) return said(status);
        if (const DnnStatus status = dnn.get_attribute(plan.handle(), plan_workspace, DnnAttributeType::int64,
                                                       1, &count, &workspace_);
            status != DnnStatus::success)
            return said(status);
        if (workspace_ > max_dnn_workspace) {
            refused_.insert(fmt::format("more than {} MB of scratch", max_dnn_workspace >> 20));
            return false;
        }
        if (const DnnStatus status = dnn.get_attribute(handle, cuda::DnnAttribute::engine_number,
                                                       DnnAttributeType::int64, 1, &count, &engine_);
            status != DnnStatus::success)
            return said(status);
        if (is_wrong()) {
            refused_.insert("wrong numbers");
            return false;
        }
        plan_ = &plan;
        return true;
    }

    /// Seen of cuDNN 9.19 on an H200: where padding before and behind differ, its engine 1 makes gradients of
    /// FP32 filters that are wrong in every number. Others were right in the same cases.
    bool is_wrong() const {
        constexpr std::int64_t symmetric = 1;
        const ConvolutionAxis &rows = of_.of.vertical, &columns = of_.of.horizontal;
        return engine_ == symmetric && (rows.before != rows.behind || columns.before != columns.behind);
    }

    /// Keeps the library's words on its refusal.
    bool said(DnnStatus status) {
        said_ = words_of(*context_.dnn, status);
        refused_.insert("what cuDNN refuses");
        return false;
    }

    const Context& context_;
    DnnConvolution of_;
    DnnGraph graph_;
    const OwnDescriptor* plan_ = nullptr;
    std::int64_t workspace_ = 0, seen_ = 0, engine_ = 0;
    std::set<std::string> refused_;
    std::string said_;
};

}  // namespace

Expected<std::shared_ptr<DnnPlan>> plan_convolution(const Context& context, const DnnConvolution& of) {
    if (!context.dnn) return Unexpected{context.no_dnn};
    auto planned = std::make_shared<PlannedConvolution>(context, of);
    if (std::string reason = planned->find(); !reason.empty()) return Unexpected{std::move(reason)};
    return std::shared_ptr<DnnPlan>(std::move(planned));
}

}  // namespace mantissa::on_cuda
