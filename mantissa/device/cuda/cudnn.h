// The functions of cuDNN that convolve, as one table, filled from NVIDIA's library when the program runs.
// Declared here from the documented interface, as the driver's are: descriptors with attributes, for graphs
// of operations and plans that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mantissa/base/expected.h"
#include "mantissa/device/cuda/driver.h"

namespace mantissa::inline v0::cuda {

enum class DnnStatus : int {
    success = 0,
    not_initialized = 1001,
    bad_param = 2000,
    null_pointer = 2002,
    misaligned_pointer = 2003,
    not_finalized = 2004,
    size_insufficient = 2006,
    shape_mismatch = 2008,
    attribute_type = 2010,
    descriptor_type = 2012,
    not_supported = 3000,
    unsupported_graph = 3001,
    unsupported_data_type = 3003,
    execution_failed = 5000,
};

enum class DnnDescriptorKind : int {
    pointwise = 0,
    convolution = 1,
    engine = 2,
    engine_config = 3,
    heuristics = 4,
    plan = 5,
    forward = 10,
    backward_filter = 11,
    backward_data = 12,
    pointwise_operation = 13,
    graph = 15,
    variant_pack = 16,
    tensor = 17,
};

enum class DnnAttribute : int {
    pointwise_mode = 0,
    pointwise_precision = 1,
    convolution_precision = 100,
    convolution_mode = 101,
    convolution_dilations = 102,
    convolution_strides = 103,
    convolution_post_paddings = 104,
    convolution_pre_paddings = 105,
    convolution_spatial_dimensions = 106,
    heuristics_mode = 200,
    heuristics_graph = 201,
    heuristics_results = 202,
    engine_config_engine = 300,
    plan_handle = 400,
    plan_engine_config = 401,
    plan_workspace = 402,
    forward_alpha = 700,
    forward_beta = 701,
    forward_convolution = 702,
    forward_w = 703,
    forward_x = 704,
    forward_y = 705,
    data_alpha = 706,
    data_beta = 707,
    data_convolution = 708,
    data_w = 709,
    data_dx = 710,
    data_dy = 711,
    filter_alpha = 712,
    filter_beta = 713,
    filter_convolution = 714,
    filter_dw = 715,
    filter_x = 716,
    filter_dy = 717,
    operation_pointwise = 750,
    operation_x = 751,
    operation_b = 752,
    operation_y = 753,
    graph_handle = 800,
    graph_operations = 801,
    tensor_alignment = 900,
    tensor_type = 901,
    tensor_dimensions = 902,
    tensor_strides = 903,
    tensor_id = 906,
    tensor_is_virtual = 907,
    pack_ids = 1000,
    pack_pointers = 1001,
    pack_workspace = 1003,
    engine_number = 1301,
    engine_notes = 1303,
};

/// The type of an attribute's elements.
enum class DnnAttributeType : int {
    handle = 0,
    data_type = 1,
    boolean = 2,
    int64 = 3,
    float32 = 4,
    void_pointer = 6,
    convolution_mode = 7,
    heuristics_mode = 8,
    numerical_note = 11,
    pointwise_mode = 14,
    descriptor = 15,
};

enum class DnnType : int { f32 = 0, f16 = 2, bf16 = 9 };
enum class DnnConvolutionMode : int { cross_correlation = 1 };
enum class DnnPointwiseMode : int { add = 0 };
enum class DnnHeuristics : int { fallback = 2, best = 3 };

/// The kind of an engine's numbers.
enum class DnnNote : int {
    tensor_core = 0,  ///< of FP32 operands: as TF32
    down_converts_inputs = 1,
    reduced_precision_reduction = 2,
    fft = 3,
    nondeterministic = 4,
    winograd = 5,
};

using DnnHandle = struct DnnHandleOf*;
using DnnDescriptor = struct DnnDescriptorOf*;

/// The members have the library's names, arguments and meanings: cuDNN 9. All are set.
struct Cudnn {
    template <class Signature>
    using Call = std::function<Signature>;

    Call<std::size_t()> get_version;  ///< 10000 times the major number, 100 times the minor one and the patch
    Call<const char*(DnnStatus status)> get_error_string;
    /// More words on the last failure, at most so many bytes with the zero behind them.
    Call<void(char* message, std::size_t most)> get_last_error_string;
    Call<DnnStatus(DnnHandle* handle)> create;
    Call<DnnStatus(DnnHandle handle)> destroy;
    Call<DnnStatus(DnnHandle handle, Stream stream)> set_stream;
    Call<DnnStatus(DnnDescriptorKind kind, DnnDescriptor* descriptor)> create_descriptor;
    Call<DnnStatus(DnnDescriptor descriptor)> destroy_descriptor;
    Call<DnnStatus(DnnDescriptor descriptor)> finalize;
    Call<DnnStatus(DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type,
                   std::int64_t count, const void* elements)>
        set_attribute;
    /// `count` becomes the number of elements; at most `asked` of them are written. For descriptors,
    /// `elements` are created ones, which become the result.
    Call<DnnStatus(DnnDescriptor descriptor, DnnAttribute attribute, DnnAttributeType type,
                   std::int64_t asked, std::int64_t* count, void* elements)>
        get_attribute;
    Call<DnnStatus(DnnHandle handle, DnnDescriptor plan, DnnDescriptor variant_pack)> execute;

    /// How reports call it: "cuDNN 9.19.0".
    std::string name;
    /// Keeps the library that the functions need.
    std::shared_ptr<void> kept;
};

/// Calls `visit(member, "cudnnName")` for each function.
template <class AnyTable, class Visit>
void for_each_dnn_function(AnyTable& table, const Visit& visit) {
    visit(table.get_version, "cudnnGetVersion");
    visit(table.get_error_string, "cudnnGetErrorString");
    visit(table.get_last_error_string, "cudnnGetLastErrorString");
    visit(table.create, "cudnnCreate");
    visit(table.destroy, "cudnnDestroy");
    visit(table.set_stream, "cudnnSetStream");
    visit(table.create_descriptor, "cudnnBackendCreateDescriptor");
    visit(table.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    visit(table.finalize, "cudnnBackendFinalize");
    visit(table.set_attribute, "cudnnBackendSetAttribute");
    visit(table.get_attribute, "cudnnBackendGetAttribute");
    visit(table.execute, "cudnnBackendExecute");
}

/// The functions of a library; or one line that names the missing library, function or version.
Expected<Cudnn> load_cudnn(const std::string& library);

/// A status in the library's words, with its words on the last failure.
std::string words_of(const Cudnn& table, DnnStatus status);

/// Throws UserError unless the status is success, with the attempt and the library's words.
void require(const Cudnn& table, DnnStatus status, const std::string& what);

}  // namespace mantissa::cuda
