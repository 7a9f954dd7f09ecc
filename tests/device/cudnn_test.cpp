// The table of cuDNN's functions, that our declarations agree with NVIDIA's header where one is installed,
// and what the emulated library refuses as the real one does.
#include "mantissa/device/cuda/cudnn.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/device/emulated_gpu_harness.h"
#include "tests/device/same.h"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define MANTISSA_TEST_CUDNN_HEADER
#endif

namespace mantissa::testing {
namespace {

using cuda::DnnAttribute;
using cuda::DnnAttributeType;
using cuda::DnnDescriptor;
using cuda::DnnDescriptorKind;
using cuda::DnnNote;
using cuda::DnnStatus;
using cuda::DnnType;
using enum cuda::DnnAttribute;
using Extents = std::vector<std::int64_t>;

TEST(Cudnn, ALibraryThatIsNotThereIsOneLine) {
    EXPECT_EQ(cuda::load_cudnn("libno_such_cudnn.so.1").reason(),
              "there is no cuDNN here (libno_such_cudnn.so.1 cannot be loaded); install cuDNN 9");
}

TEST(Cudnn, ALibraryThatLacksAFunctionIsOneLine) {
    EXPECT_EQ(cuda::load_cudnn("libm.so.6").reason(),
              "cuDNN (libm.so.6) has no function cudnnGetVersion; cuDNN 9 is needed");
}

/// A convolution of images [1, 8, 4, 4] with filters [8, 8, 3, 3] on the emulated GPU, in FP32.
class EmulatedCudnn : public ::testing::Test {
  protected:
    void SetUp() override {
        dnn = gpu.gpu().cudnn();
        ASSERT_EQ(dnn.create(&handle), DnnStatus::success);
        ASSERT_EQ(dnn.set_stream(handle, gpu.stream()), DnnStatus::success);
    }

    DnnDescriptor make(DnnDescriptorKind kind) {
        DnnDescriptor made = nullptr;
        EXPECT_EQ(dnn.create_descriptor(kind, &made), DnnStatus::success);
        return made;
    }
    template <class T>
    DnnStatus set(DnnDescriptor of, DnnAttribute attribute, DnnAttributeType type, std::vector<T> values) {
        return dnn.set_attribute(of, attribute, type, static_cast<std::int64_t>(values.size()),
                                 values.data());
    }
    DnnStatus set(DnnDescriptor of, DnnAttribute attribute, Extents values) {
        return set(of, attribute, DnnAttributeType::int64, std::move(values));
    }
    DnnStatus set(DnnDescriptor of, DnnAttribute attribute, DnnDescriptor part) {
        return set(of, attribute, DnnAttributeType::descriptor, std::vector{part});
    }
    std::string words() {
        std::array<char, 200> text = {};
        dnn.get_last_error_string(text.data(), text.size());
        return text.data();
    }

    DnnDescriptor tensor(std::int64_t id, const Extents& nchw, DnnType type = DnnType::f32,
                         std::int64_t alignment = 16, Extents strides = {}) {
        DnnDescriptor made = make(DnnDescriptorKind::tensor);
        if (strides.empty()) strides = {nchw[1] * nchw[2] * nchw[3], 1, nchw[3] * nchw[1], nchw[1]};
        set(made, tensor_type, DnnAttributeType::data_type, std::vector{type});
        set(made, tensor_dimensions, nchw);
        set(made, tensor_strides, strides);
        set(made, tensor_id, {id});
        set(made, tensor_alignment, {alignment});
        return made;
    }
    DnnDescriptor finished(DnnDescriptor made) {
        EXPECT_EQ(dnn.finalize(made), DnnStatus::success) << words();
        return made;
    }
    DnnDescriptor convolution(std::int64_t padding = 1) {
        DnnDescriptor made = make(DnnDescriptorKind::convolution);
        set(made, convolution_precision, DnnAttributeType::data_type, std::vector{DnnType::f32});
        set(made, convolution_mode, DnnAttributeType::convolution_mode,
            std::vector{cuda::DnnConvolutionMode::cross_correlation});
        set(made, convolution_spatial_dimensions, {2});
        for (const auto attribute : {convolution_dilations, convolution_strides})
            set(made, attribute, {1, 1});
        for (const auto attribute : {convolution_pre_paddings, convolution_post_paddings})
            set(made, attribute, {padding, padding});
        return made;
    }
    /// Finished but for `finalize`.
    DnnDescriptor forward(DnnDescriptor x, DnnDescriptor w, DnnDescriptor y) {
        DnnDescriptor made = make(DnnDescriptorKind::forward);
        set(made, forward_convolution, finished(convolution()));
        set(made, forward_x, finished(x));
        set(made, forward_w, finished(w));
        set(made, forward_y, finished(y));
        set(made, forward_alpha, DnnAttributeType::float32, std::vector{1.0f});
        set(made, forward_beta, DnnAttributeType::float32, std::vector{0.0f});
        return made;
    }
    DnnDescriptor forward_in(DnnType type, DnnType result, std::int64_t alignment = 16) {
        return finished(forward(tensor(1, {1, 8, 4, 4}, type, alignment),
                                tensor(2, {8, 8, 3, 3}, type, alignment),
                                tensor(3, {1, 8, 4, 4}, result, alignment)));
    }
    /// The engines that are offered for an operation.
    std::vector<DnnDescriptor> offered(DnnDescriptor operation) {
        DnnDescriptor graph = make(DnnDescriptorKind::graph),
                      heuristics = make(DnnDescriptorKind::heuristics);
        set(graph, graph_operations, operation);
        set(heuristics, heuristics_graph, finished(graph));
        set(heuristics, heuristics_mode, DnnAttributeType::heuristics_mode,
            std::vector{cuda::DnnHeuristics::best});
        finished(heuristics);
        std::int64_t count = 0;
        EXPECT_EQ(dnn.get_attribute(heuristics, heuristics_results, DnnAttributeType::descriptor, 0, &count,
                                    nullptr),
                  DnnStatus::success);
        std::vector<DnnDescriptor> all;
        for (std::int64_t i = 0; i < count; ++i) all.push_back(make(DnnDescriptorKind::engine_config));
        if (count > 0) {
            EXPECT_EQ(dnn.get_attribute(heuristics, heuristics_results, DnnAttributeType::descriptor, count,
                                        &count, all.data()),
                      DnnStatus::success);
        }
        return all;
    }
    std::vector<DnnNote> notes(DnnDescriptor configuration) {
        DnnDescriptor engine = make(DnnDescriptorKind::engine);
        std::int64_t count = 0;
        EXPECT_EQ(dnn.get_attribute(configuration, engine_config_engine, DnnAttributeType::descriptor, 1,
                                    &count, &engine),
                  DnnStatus::success);
        std::vector<DnnNote> all(16);
        EXPECT_EQ(
            dnn.get_attribute(engine, engine_notes, DnnAttributeType::numerical_note, 16, &count, all.data()),
            DnnStatus::success);
        all.resize(static_cast<std::size_t>(count));
        return all;
    }
    DnnDescriptor plan_of(DnnDescriptor configuration) {
        DnnDescriptor plan = make(DnnDescriptorKind::plan);
        set(plan, plan_engine_config, configuration);
        return finished(plan);
    }
    DnnStatus execute(DnnDescriptor plan, const std::vector<cuda::DevicePtr>& pointers,
                      cuda::DevicePtr scratch) {
        DnnDescriptor pack = make(DnnDescriptorKind::variant_pack);
        set(pack, pack_ids, {1, 2, 3});
        set(pack, pack_pointers, DnnAttributeType::void_pointer, pointers);
        if (scratch) set(pack, pack_workspace, DnnAttributeType::void_pointer, std::vector{scratch});
        finished(pack);
        return dnn.execute(handle, plan, pack);
    }

    GpuUnderTest gpu;
    cuda::Cudnn dnn;
    cuda::DnnHandle handle = nullptr;
};

TEST_F(EmulatedCudnn, ConvolvesWhenSomebodyWaits) {
    // The last engine that is offered multiplies FP32 as it is stored.
    const std::vector<DnnDescriptor> all = offered(forward_in(DnnType::f32, DnnType::f32));
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(notes(all[0]), std::vector{DnnNote::tensor_core});
    EXPECT_EQ(notes(all[1]), std::vector{DnnNote::winograd});
    EXPECT_EQ(notes(all[2]), std::vector<DnnNote>{});
    std::vector<float> x(128), w(576, 0);
    std::iota(x.begin(), x.end(), 1.0f);
    // Filter k adds channel k of the pixel above to twice its own: [K, R, S, C].
    for (std::size_t k = 0; k < 8; ++k) {
        w[k * 72 + (0 * 3 + 1) * 8 + k] = 1;
        w[k * 72 + (1 * 3 + 1) * 8 + k] = 2;
    }
    const cuda::DevicePtr y = gpu.allocate(512);
    ASSERT_EQ(execute(plan_of(all[2]), {gpu.upload(x), gpu.upload(w), y}, 0), DnnStatus::success) << words();
    const auto got = gpu.download<float>(y, 128);
    for (std::size_t pixel = 0; pixel < 16; ++pixel)
        for (std::size_t k = 0; k < 8; ++k)
            EXPECT_EQ(got[pixel * 8 + k], 2 * x[pixel * 8 + k] + (pixel < 4 ? 0 : x[(pixel - 4) * 8 + k]))
                << pixel << ", " << k;
}

TEST_F(EmulatedCudnn, RefusesAttributesThatDoNotFit) {
    const DnnDescriptor some = tensor(1, {1, 8, 4, 4});
    EXPECT_EQ(set(some, convolution_strides, {1, 1}), DnnStatus::bad_param) << "of another kind";
    EXPECT_EQ(set(some, tensor_id, DnnAttributeType::void_pointer, Extents{1}), DnnStatus::attribute_type);
    EXPECT_EQ(set(some, tensor_id, {1, 2}), DnnStatus::bad_param) << "two ids";
    EXPECT_EQ(dnn.finalize(make(DnnDescriptorKind::tensor)), DnnStatus::bad_param);
    EXPECT_EQ(words(), "attribute 901 is missing");
    finished(some);
    EXPECT_EQ(set(some, tensor_id, {2}), DnnStatus::bad_param) << "finalized";
    const DnnDescriptor operation = make(DnnDescriptorKind::forward);
    EXPECT_EQ(set(operation, forward_x, tensor(1, {1, 8, 4, 4})), DnnStatus::not_finalized);
    EXPECT_EQ(dnn.finalize(tensor(1, {1, 8, 4, 4}, DnnType::f32, 12)), DnnStatus::bad_param) << "alignment";
    EXPECT_EQ(dnn.finalize(convolution(-1)), DnnStatus::bad_param) << "padding";
}

TEST_F(EmulatedCudnn, RefusesTensorsThatMakeNoConvolution) {
    EXPECT_EQ(
        dnn.finalize(forward(tensor(1, {1, 8, 4, 4}), tensor(2, {8, 8, 3, 3}), tensor(3, {1, 8, 4, 5}))),
        DnnStatus::shape_mismatch);
    EXPECT_EQ(
        dnn.finalize(forward(tensor(1, {1, 8, 4, 4}), tensor(2, {8, 3, 3, 3}), tensor(3, {1, 8, 4, 4}))),
        DnnStatus::shape_mismatch)
        << "groups";
    const Extents apart{7, 576, 192, 64};
    EXPECT_EQ(dnn.finalize(forward(tensor(1, {1, 8, 4, 4}), tensor(2, {8, 8, 3, 3}, DnnType::f32, 16, apart),
                                   tensor(3, {1, 8, 4, 4}))),
              DnnStatus::bad_param)
        << "elements that lie apart";
}

/// As cuDNN 9.19 does (bench/cudnn_engines.py).
TEST_F(EmulatedCudnn, OffersNothingForWhatTheRealOneDoesNot) {
    EXPECT_EQ(offered(forward_in(DnnType::bf16, DnnType::bf16)).size(), 1u);
    EXPECT_EQ(offered(forward_in(DnnType::bf16, DnnType::f32)).size(), 0u) << "a result of another type";
    EXPECT_EQ(offered(forward_in(DnnType::f16, DnnType::f16, 8)).size(), 0u) << "too little alignment";
    const std::vector<DnnDescriptor> askew = offered(forward_in(DnnType::f32, DnnType::f32, 4));
    ASSERT_FALSE(askew.empty());
    EXPECT_NE(notes(askew[0]), std::vector{DnnNote::tensor_core});
}

TEST_F(EmulatedCudnn, RefusesAddressesThatItCannotUse) {
    const std::vector<DnnDescriptor> all = offered(forward_in(DnnType::f32, DnnType::f32));
    const DnnDescriptor plan = plan_of(all[0]);
    const cuda::DevicePtr x = gpu.upload(std::vector<float>(128)), w = gpu.upload(std::vector<float>(576)),
                          y = gpu.allocate(512), scratch = gpu.allocate(1 << 20);
    EXPECT_EQ(execute(plan, {x, w, y}, 0), DnnStatus::null_pointer) << "a workspace is needed";
    EXPECT_EQ(execute(plan, {x, w + 4, y}, scratch), DnnStatus::misaligned_pointer);
    EXPECT_EQ(execute(plan, {x, 0, y}, scratch), DnnStatus::null_pointer);
    ASSERT_EQ(execute(plan, {x, w, y}, scratch), DnnStatus::success);
    ASSERT_EQ(execute(plan, {x, gpu.allocate(2304), y}, scratch), DnnStatus::success);
    EXPECT_EQ(gpu.driver().stream_synchronize(gpu.stream()), cuda::Result::illegal_address);
    EXPECT_NE(gpu.report().find("cudnnBackendExecute, reading w: byte 0 of allocation"), std::string::npos)
        << gpu.report();
}

#ifdef MANTISSA_TEST_CUDNN_HEADER
static_assert(same(DnnStatus::not_initialized, CUDNN_STATUS_NOT_INITIALIZED) &&
              same(DnnStatus::bad_param, CUDNN_STATUS_BAD_PARAM) &&
              same(DnnStatus::null_pointer, CUDNN_STATUS_BAD_PARAM_NULL_POINTER) &&
              same(DnnStatus::misaligned_pointer, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER) &&
              same(DnnStatus::not_finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED) &&
              same(DnnStatus::size_insufficient, CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT) &&
              same(DnnStatus::shape_mismatch, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH) &&
              same(DnnStatus::attribute_type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE) &&
              same(DnnStatus::descriptor_type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE) &&
              same(DnnStatus::not_supported, CUDNN_STATUS_NOT_SUPPORTED) &&
              same(DnnStatus::unsupported_graph, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN) &&
              same(DnnStatus::unsupported_data_type, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE) &&
              same(DnnStatus::execution_failed, CUDNN_STATUS_EXECUTION_FAILED));
static_assert(same(DnnDescriptorKind::pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR) &&
              same(DnnDescriptorKind::convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) &&
              same(DnnDescriptorKind::engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR) &&
              same(DnnDescriptorKind::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) &&
              same(DnnDescriptorKind::heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) &&
              same(DnnDescriptorKind::plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) &&
              same(DnnDescriptorKind::forward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) &&
              same(DnnDescriptorKind::backward_filter,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) &&
              same(DnnDescriptorKind::backward_data,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) &&
              same(DnnDescriptorKind::pointwise_operation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) &&
              same(DnnDescriptorKind::graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) &&
              same(DnnDescriptorKind::variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) &&
              same(DnnDescriptorKind::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
static_assert(same(pointwise_mode, CUDNN_ATTR_POINTWISE_MODE) &&
              same(pointwise_precision, CUDNN_ATTR_POINTWISE_MATH_PREC) &&
              same(convolution_precision, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) &&
              same(convolution_mode, CUDNN_ATTR_CONVOLUTION_CONV_MODE) &&
              same(convolution_dilations, CUDNN_ATTR_CONVOLUTION_DILATIONS) &&
              same(convolution_strides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) &&
              same(convolution_post_paddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) &&
              same(convolution_pre_paddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) &&
              same(convolution_spatial_dimensions, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) &&
              same(heuristics_mode, CUDNN_ATTR_ENGINEHEUR_MODE) &&
              same(heuristics_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) &&
              same(heuristics_results, CUDNN_ATTR_ENGINEHEUR_RESULTS) &&
              same(engine_config_engine, CUDNN_ATTR_ENGINECFG_ENGINE) && same(plan_handle, 400) &&
              same(plan_engine_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) &&
              same(plan_workspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(same(forward_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA) &&
              same(forward_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA) &&
              same(forward_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC) &&
              same(forward_w, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W) &&
              same(forward_x, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X) &&
              same(forward_y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y) &&
              same(data_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA) &&
              same(data_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) &&
              same(data_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC) &&
              same(data_w, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W) &&
              same(data_dx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX) &&
              same(data_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY) &&
              same(filter_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA) &&
              same(filter_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA) &&
              same(filter_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC) &&
              same(filter_dw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW) &&
              same(filter_x, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X) &&
              same(filter_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
static_assert(same(operation_pointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) &&
              same(operation_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) &&
              same(operation_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) &&
              same(operation_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC) && same(graph_handle, 800) &&
              same(graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS) &&
              same(tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) &&
              same(tensor_type, CUDNN_ATTR_TENSOR_DATA_TYPE) &&
              same(tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS) &&
              same(tensor_strides, CUDNN_ATTR_TENSOR_STRIDES) &&
              same(tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID) &&
              same(tensor_is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
              same(pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) &&
              same(pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) &&
              same(pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE) &&
              same(engine_number, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) &&
              same(engine_notes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
static_assert(same(DnnAttributeType::handle, CUDNN_TYPE_HANDLE) &&
              same(DnnAttributeType::data_type, CUDNN_TYPE_DATA_TYPE) &&
              same(DnnAttributeType::boolean, CUDNN_TYPE_BOOLEAN) &&
              same(DnnAttributeType::int64, CUDNN_TYPE_INT64) &&
              same(DnnAttributeType::float32, CUDNN_TYPE_FLOAT) &&
              same(DnnAttributeType::void_pointer, CUDNN_TYPE_VOID_PTR) &&
              same(DnnAttributeType::convolution_mode, CUDNN_TYPE_CONVOLUTION_MODE) &&
              same(DnnAttributeType::heuristics_mode, CUDNN_TYPE_HEUR_MODE) &&
              same(DnnAttributeType::numerical_note, CUDNN_TYPE_NUMERICAL_NOTE) &&
              same(DnnAttributeType::pointwise_mode, CUDNN_TYPE_POINTWISE_MODE) &&
              same(DnnAttributeType::descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(same(DnnType::f32, CUDNN_DATA_FLOAT) && same(DnnType::f16, CUDNN_DATA_HALF) &&
              same(DnnType::bf16, CUDNN_DATA_BFLOAT16) &&
              same(cuda::DnnConvolutionMode::cross_correlation, CUDNN_CROSS_CORRELATION) &&
              same(cuda::DnnPointwiseMode::add, CUDNN_POINTWISE_ADD) &&
              same(cuda::DnnHeuristics::fallback, CUDNN_HEUR_MODE_FALLBACK) &&
              same(cuda::DnnHeuristics::best, CUDNN_HEUR_MODE_A));
static_assert(same(DnnNote::tensor_core, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
              same(DnnNote::down_converts_inputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
              same(DnnNote::reduced_precision_reduction, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
              same(DnnNote::fft, CUDNN_NUMERICAL_NOTE_FFT) &&
              same(DnnNote::nondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
              same(DnnNote::winograd, CUDNN_NUMERICAL_NOTE_WINOGRAD));
#endif

}  // namespace
}  // namespace mantissa::testing
