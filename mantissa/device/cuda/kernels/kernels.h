// The GPU's kernel table: binds kernels that are made in process, and cuBLASLt's and cuDNN's, to operations
// of the graph.
//
// A launch queues: its work is done when the stream comes to it, and kept in a graph where the stream is
// being captured. So it reads no memory of the device, and waits for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/kernel_modules.h"
#include "mantissa/device/cuda/kernels/product_algorithms.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cuda {

class GpuRanks;

/// Places in a row that get a thread each, at most: up to eight neighbouring columns of 16 bits.
constexpr std::int64_t max_places_of_row = 512;

/// The device's objects that kernels are bound to. Lives as long as the device, at one address.
struct Context {
    const cuda::Driver& driver;
    const cuda::CublasLt& blas;
    cuda::BlasHandle blas_handle = nullptr;
    const cuda::Cudnn* dnn = nullptr;  ///< null: `no_dnn` says why
    cuda::DnnHandle dnn_handle = nullptr;
    std::string no_dnn = {};
    KernelModules& modules;
    ProductAlgorithms& algorithms;
    cuda::Stream work = nullptr;  ///< where launches queue
    // Units, named as in Arithmetic::unit.
    std::string unit;                   ///< FP32: "sm_80"
    std::string matrix_unit;            ///< TF32 and shorter
    std::string fp8_unit = {};          ///< empty: there is none
    std::int64_t resident_threads = 0;  ///< that all multiprocessors hold at a time
    // Two i32 of the device and of the host: the failure in a kernel, as `reports` numbers it from 1, and an
    // index that was outside.
    cuda::DevicePtr report_on_device = 0;
    std::int32_t* report_on_host = nullptr;
    std::vector<std::string> reports = {};
    GpuRanks* ranks = nullptr;         ///< the ranks that the GPU belongs to; null: there are none
    bool warpgroup_attention = false;  ///< CudaOptions', on a GPU that has them
    std::int64_t loss_chunks = 1;      ///< CudaOptions'

    /// The number of a report; its text says which index is reported.
    std::int32_t report(const std::string& text);
};

/// By operation, in order of preference.
using KernelTable = std::map<std::string, std::vector<Kernel>, std::less<>>;

cuda::DevicePtr address_of(const std::byte* pointer);

/// A kernel of a grid, with the blocks that it takes.
struct SizedKernel {
    std::shared_ptr<const GpuKernel> kernel = nullptr;
    std::int64_t blocks = 0;
};
SizedKernel add_sized(Context& context, codegen::GridKernel kernel);

/// Launches of a kernel whose parameters are all operands' addresses, then all outputs'.
Launch launch_of(const Context& context, SizedKernel kernel);

/// Queues a kernel of a grid; nothing for no blocks.
void launch(const Context& context, const GpuKernel& kernel, std::int64_t blocks,
            std::vector<std::uint64_t> parameters, int threads = codegen::grid_threads);
/// Launches on another stream.
void launch_on(const Context& context, cuda::Stream stream, const GpuKernel& kernel, std::int64_t blocks,
               std::vector<std::uint64_t> parameters);
/// One of many small problems of a kind: the words of its table, without the first.
struct Part {
    std::int64_t blocks = 0;
    std::vector<std::uint64_t> words;
};
/// Queues a kernel with a table over all parts, in as many launches as it takes. `parameters` are the ones
/// behind the table.
void launch_parts(const Context& context, const GpuKernel& kernel, const codegen::PartTable& table,
                  std::span<const Part> parts, const std::vector<std::uint64_t>& parameters);
/// Launches a kernel that may report an index, as `launch` does, and adds the last parameter.
void launch_reporting(const Context& context, const GpuKernel& kernel, std::int64_t blocks,
                      std::vector<std::uint64_t> parameters);
void queue_copy(const Context& context, std::byte* to, const std::byte* from, std::size_t bytes);
void queue_zeros(const Context& context, std::byte* to, std::size_t bytes);

/// Kernels of one element a thread.
void add_elementwise_kernels(KernelTable& table, Context& context);
void add_movement_kernels(KernelTable& table, Context& context);
void add_embedding_kernels(KernelTable& table, Context& context);
void add_reduction_kernels(KernelTable& table, Context& context);
void add_norm_kernels(KernelTable& table, Context& context);
/// Fused nodes, and composites whose definition is a nest.
void add_nest_kernels(KernelTable& table, Context& context);
void add_pool_kernels(KernelTable& table, Context& context);
void add_contraction_kernels(KernelTable& table, Context& context);
void add_quantized_kernels(KernelTable& table, Context& context);
void add_rounding_kernels(KernelTable& table, Context& context);
void add_convolution_kernels(KernelTable& table, Context& context);
void add_attention_kernels(KernelTable& table, Context& context);
void add_loss_kernels(KernelTable& table, Context& context);
/// Sums over ranks.
void add_collective_kernels(KernelTable& table, Context& context);

// Parts that kernels of several files are made of.

/// A reduction over any axes: one kernel, or one over chunks and one over the chunks' results.
struct Stages {
    std::shared_ptr<const GpuKernel> first, second;  // second: null
    std::int64_t first_blocks = 0, second_blocks = 0;
    std::int64_t partial_bytes = 0;

    std::int64_t launches() const { return second ? 2 : 1; }

    void queue(const Context& context, std::uint64_t x, std::uint64_t partials, std::uint64_t y) const;
};

struct Reduced {
    bool maximum = false;
    DType from = DType::f32, sums = DType::f32, to = DType::f32;
    bool askew = false;  ///< the tensor begins at any element, not at a multiple of 16 bytes
};

Stages stages_of(Context& context, const Shape& shape, const std::vector<std::int64_t>& axes,
                 const Reduced& what);

enum class NestOutputs : std::uint8_t {
    apart,
    over_operands,  ///< may lie where operands of their shape do
};

/// The kernel of a graph whose operations, as primitives, are one nest; its operands are the graph's inputs,
/// in their order.
Expected<PreparedKernel> prepare_definition(Context& context, const Graph& definition, NestOutputs place);

/// The strides that read an operand to fill a shape: repeated along axes that it is stretched over.
codegen::Strided stretched(const Type& operand, const Shape& shape);

/// Adds the kernel, with axes merged where that changes nothing, and a name that is an identifier.
SizedKernel add_element_kernel(Context& context, codegen::ElementKernel kernel);

/// A launch of one kernel over all operands and the first output.
Launch launch_of_elements(Context& context, codegen::ElementKernel kernel);

}  // namespace mantissa::on_cuda
