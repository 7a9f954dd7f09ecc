// Matrix products by cuBLASLt. It stores matrices column by column, so a matrix row by row is the transpose
// to it: y = a b is asked for as its transpose, b's times a's.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/device/cuda/kernels/product_sample.h"
#include "mantissa/device/tf32_refusal.h"

namespace mantissa::inline v0::on_cuda {

namespace {

using cuda::BlasStatus;
using cuda::BlasType;

/// NVIDIA's recommendation for sm_90; other architectures need less.
constexpr std::uint64_t max_workspace = std::uint64_t{32} << 20;
/// Addresses that are multiples of this are read 16 bytes at a time: larger multiples gain nothing.
constexpr std::uint32_t best_alignment = 16;

BlasType blas_type(DType dtype, Layout layout = Layout::row_major) {
    if (layout == Layout::e4m3) return BlasType::e4m3;
    if (layout == Layout::e5m2) return BlasType::e5m2;
    switch (dtype) {
        case DType::f32:
            return BlasType::f32;
        case DType::f16:
            return BlasType::f16;
        case DType::bf16:
            return BlasType::bf16;
        case DType::s8:
            return BlasType::s8;
        case DType::i32:
            return BlasType::i32;
        default:
            throw InternalError(fmt::format("cuBLASLt multiplies no {}", name_of(dtype)));
    }
}

cuda::BlasEpilogue epilogue_of(const Product& product) {
    using enum cuda::BlasEpilogue;
    switch (product.epilogue) {
        case Product::Epilogue::none:
            return product.bias ? bias : none;
        case Product::Epilogue::gelu:
            return product.bias ? gelu_bias : gelu;
        case Product::Epilogue::gelu_and_input:
            return product.bias ? gelu_kept_bias : gelu_kept;
        case Product::Epilogue::gelu_gradient:
            return gelu_gradient;
        case Product::Epilogue::gelu_gradient_and_its_sums:
            return gelu_and_bias_gradient;
    }
    throw InternalError("an epilogue of a product that is none");
}

std::string text_of(Product::Epilogue epilogue) {
    switch (epilogue) {
        case Product::Epilogue::none:
            return "";
        case Product::Epilogue::gelu:
            return ", gelu";
        case Product::Epilogue::gelu_and_input:
            return ", gelu and its input";
        case Product::Epilogue::gelu_gradient:
            return ", gelu's gradient";
        case Product::Epilogue::gelu_gradient_and_its_sums:
            return ", gelu's gradient and its sums";
    }
    throw InternalError("an epilogue of a product that is none");
}

/// The library's objects for a product, freed with it.
class Descriptions {
  public:
    Descriptions(const cuda::CublasLt& blas, const Product& product)
        : blas_(blas), adds_(product.adds), whole_(product.y.dtype == DType::i32) {
        using enum cuda::MatmulAttribute;
        const cuda::BlasCompute compute = whole_         ? cuda::BlasCompute::i32
                                          : product.tf32 ? cuda::BlasCompute::f32_as_tf32
                                                         : cuda::BlasCompute::f32;
        take(blas.matmul_desc_create(&product_, compute, whole_ ? BlasType::i32 : BlasType::f32),
             "describing a product");
        // Its first operand is our second.
        set(transpose_a, operation(product.b.transposed));
        set(transpose_b, operation(product.a.transposed));
        const cuda::BlasEpilogue kind = epilogue_of(product);
        set(epilogue, kind);
        // Any addresses, so that an algorithm is found.
        constexpr cuda::DevicePtr some = best_alignment;
        if (has(kind, cuda::BlasEpilogue::bias) || has(kind, cuda::BlasEpilogue::gelu_and_bias_gradient)) {
            set(bias_type, blas_type(product.y.dtype));
            set(bias_pointer, some);
        }
        if (product.is_scaled()) {
            set(scale_of_a, some);
            set(scale_of_b, some);
        }
        if (has(kind, cuda::BlasEpilogue::gelu_kept) || has(kind, cuda::BlasEpilogue::gelu_gradient)) {
            set(kept_leading, product.y.columns);
            set(kept_pointer, some);
        }
        a_ = layout(product.b, product.batch);
        b_ = layout(product.a, product.batch);
        d_ = layout(product.y, product.batch);
    }
    ~Descriptions() {
        blas_.matmul_desc_destroy(product_);
        for (const cuda::MatrixLayout one : {a_, b_, d_}) blas_.matrix_layout_destroy(one);
    }
    Descriptions(const Descriptions&) = delete;
    Descriptions& operator=(const Descriptions&) = delete;

    template <class T>
    void set(cuda::MatmulAttribute attribute, const T& value) {
        take(blas_.matmul_desc_set_attribute(product_, attribute, &value, sizeof value),
             "describing a product");
    }

    /// Up to `most` of the library's algorithms for operands of that alignment, its best first, that add
    /// parts of sums in FP32 and in order. Where there is none, the library's message.
    Expected<std::vector<cuda::MatmulHeuristic>> find(cuda::BlasHandle handle, std::uint32_t alignment,
                                                      std::uint64_t workspace, int most) const {
        using enum cuda::PreferenceAttribute;
        cuda::MatmulPreference preference = nullptr;
        take(blas_.matmul_preference_create(&preference), "what is asked of a product");
        const auto prefer = [&](cuda::PreferenceAttribute attribute, const auto& value) {
            take(blas_.matmul_preference_set_attribute(preference, attribute, &value, sizeof value),
                 "what is asked of a product");
        };
        prefer(max_workspace, workspace);
        prefer(reduction_schemes, cuda::reduce_in_f32);
        for (const auto least : {min_alignment_a, min_alignment_b, min_alignment_c, min_alignment_d})
            prefer(least, alignment);
        std::vector<cuda::MatmulHeuristic> offered(static_cast<std::size_t>(most));
        int found = 0;
        const BlasStatus status = blas_.matmul_algo_get_heuristic(handle, product_, a_, b_, d_, d_,
                                                                  preference, most, offered.data(), &found);
        blas_.matmul_preference_destroy(preference);
        if (status != BlasStatus::success)
            return Unexpected{fmt::format("cuBLASLt says {}", blas_.get_status_name(status))};
        offered.resize(static_cast<std::size_t>(found));
        std::erase_if(offered, [](const auto& one) { return one.state != BlasStatus::success; });
        if (offered.empty()) return Unexpected{"cuBLASLt has no algorithm for it"};
        return offered;
    }

    BlasStatus multiply(cuda::BlasHandle handle, const Operands& operands, const cuda::MatmulHeuristic& found,
                        cuda::Stream stream) const {
        const auto queue = [&](const auto& one, const auto& of_y) {
            return blas_.matmul(handle, product_, &one, operands.inputs[1], a_, operands.inputs[0], b_, &of_y,
                                operands.outputs[0], d_, operands.outputs[0], d_, &found.algorithm,
                                found.workspace > 0 ? operands.workspace : nullptr, found.workspace, stream);
        };
        return whole_ ? queue(std::int32_t{1}, std::int32_t{adds_}) : queue(1.0f, adds_ ? 1.0f : 0.0f);
    }

  private:
    static cuda::BlasOperation operation(bool transposed) {
        return transposed ? cuda::BlasOperation::transposed : cuda::BlasOperation::as_stored;
    }

    void take(BlasStatus status, const char* what) const { require(blas_, status, what); }

    cuda::MatrixLayout layout(const Product::Matrix& of, std::int64_t batch) {
        cuda::MatrixLayout made = nullptr;
        take(blas_.matrix_layout_create(&made, blas_type(of.dtype, of.layout),
                                        static_cast<std::uint64_t>(of.columns),
                                        static_cast<std::uint64_t>(of.rows), of.columns),
             "a matrix's layout");
        if (batch == 1) return made;
        const auto count = static_cast<std::int32_t>(batch);
        const std::int64_t stride = of.rows * of.columns;
        take(
            blas_.matrix_layout_set_attribute(made, cuda::LayoutAttribute::batch_count, &count, sizeof count),
            "a batch of matrices");
        take(blas_.matrix_layout_set_attribute(made, cuda::LayoutAttribute::batch_stride, &stride,
                                               sizeof stride),
             "a batch of matrices");
        return made;
    }

    const cuda::CublasLt& blas_;
    bool adds_, whole_;
    cuda::MatmulDescription product_ = nullptr;
    cuda::MatrixLayout a_ = nullptr, b_ = nullptr, d_ = nullptr;
};

/// The largest power of two, up to the best, that divides these addresses and all steps of the batch.
std::uint32_t alignment_of(const Product& product, std::uint64_t addresses) {
    std::uint64_t all = addresses | best_alignment;
    if (product.batch > 1)
        for (const Product::Matrix* one : {&product.a, &product.b, &product.y})
            all |= static_cast<std::uint64_t>(one->rows * one->columns) * one->size();
    return static_cast<std::uint32_t>(all & (~all + 1));
}

/// All that an algorithm depends on, in a line: "16 x bf16[4096, 768] x bf16[3072, 768]^T + bias ->
/// bf16[4096, 3072], aligned to 16 bytes".
std::string text_of(const Product& product, std::uint32_t alignment) {
    const auto matrix = [](const Product::Matrix& of) {
        return fmt::format("{}[{}, {}]{}", of.name(), of.rows, of.columns, of.transposed ? "^T" : "");
    };
    return fmt::format("{} x {} x {}{}{} -> {}{}{}, aligned to {} bytes", product.batch, matrix(product.a),
                       matrix(product.b), product.bias ? " + bias" : "", product.tf32 ? " as tf32" : "",
                       matrix(product.y), product.adds ? ", added to it" : "", text_of(product.epilogue),
                       alignment);
}

/// A product with the algorithm that runs it.
struct BoundProduct {
    BoundProduct(Context& in, const Product& of) : context(in), product(of), descriptions(in.blas, of) {}
    BoundProduct(const BoundProduct&) = delete;
    BoundProduct& operator=(const BoundProduct&) = delete;

    /// The input of GELU that is written or read; null where there is none.
    const std::byte* kept_of(const Operands& operands) const {
        if (product.reads_gelu_input()) return operands.inputs[2];
        return product.epilogue == Product::Epilogue::gelu_and_input ? operands.outputs[1] : nullptr;
    }

    BlasStatus multiply(const cuda::MatmulHeuristic& algorithm, const Operands& operands) {
        using enum cuda::MatmulAttribute;
        if (product.bias)
            descriptions.set(bias_pointer, address_of(operands.inputs[product.place_of_bias()]));
        if (product.is_scaled()) {
            descriptions.set(scale_of_b, address_of(operands.inputs[2]));
            descriptions.set(scale_of_a, address_of(operands.inputs[3]));
        }
        if (product.epilogue == Product::Epilogue::gelu_gradient_and_its_sums)
            descriptions.set(bias_pointer, address_of(operands.outputs[1]));
        if (const std::byte* kept = kept_of(operands)) descriptions.set(kept_pointer, address_of(kept));
        return descriptions.multiply(context.blas_handle, operands, algorithm, context.work);
    }

    /// Operands that lie askew may need another algorithm, within the workspace that was planned: the
    /// library's best.
    const cuda::MatmulHeuristic& algorithm_for(std::uint32_t of_operands) {
        if (of_operands == alignment) {
            check(chosen->taken, "a product runs before its algorithm is taken");
            return *chosen->taken;
        }
        auto known = askew.find(of_operands);
        if (known == askew.end()) {
            const auto other = descriptions.find(context.blas_handle, of_operands, workspace, 1);
            if (!other)
                throw UserError(fmt::format("matmul of operands at multiples of {} bytes: {}", of_operands,
                                            other.reason()));
            known = askew.emplace(of_operands, other->front()).first;
        }
        return known->second;
    }

    void queue(const Operands& operands) {
        const std::uint32_t of_operands =
            alignment_of(product, address_of(operands.inputs[0]) | address_of(operands.inputs[1]) |
                                      address_of(operands.outputs[0]) | address_of(kept_of(operands)));
        const BlasStatus status = multiply(algorithm_for(of_operands), operands);
        if (status == BlasStatus::success) return;
        // A GPU that had a fault says so itself.
        require(context.driver, context.driver.stream_query(context.work), "cublasLtMatmul");
        require(context.blas, status, "cublasLtMatmul");
    }

    Context& context;
    Product product;
    Descriptions descriptions;
    std::uint32_t alignment = 0;  ///< of operands where the plan lays them
    std::shared_ptr<ChosenAlgorithm> chosen;
    std::uint64_t workspace = 0;
    std::map<std::uint32_t, cuda::MatmulHeuristic> askew;  ///< by alignment
};

Expected<PreparedKernel> prepare_matmul(Context& context, const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    if (problem.outputs[0].shape.elements() == 0) return PreparedKernel{.launch = [](const Operands&) {}};
    const bool has_terms =
        std::ranges::all_of(problem.inputs, [](const Type& input) { return input.shape.elements() > 0; });
    if (!has_terms && problem.inputs.size() == 2)
        return PreparedKernel{
            .launch = [&context, bytes = static_cast<std::size_t>(problem.outputs[0].bytes())](
                          const Operands& operands) { queue_zeros(context, operands.outputs[0], bytes); }};
    const Expected<Product> product = product_of(unit, problem);
    if (!product) return Unexpected{product.reason()};
    return prepare_product(context, *product);
}

/// The library takes FP8 alone with the terms of both operands side by side: as a lies, or as its transpose
/// does behind it.
Expected<PreparedKernel> prepare_scaled(Context& context, const Problem& problem) {
    const Type &a = problem.inputs[0], &b = problem.inputs[1], &y = problem.outputs[0];
    if (!is_fp8(a.layout) || !is_fp8(b.layout))
        return Unexpected{fmt::format("it multiplies FP8, got {} and {}", a.text(), b.text())};
    const bool ta = problem.attributes.flag("transpose_a"), tb = problem.attributes.flag("transpose_b");
    const auto side_by_side = [](const Type& of, bool turned) {
        const std::int64_t rows = of.shape[turned ? 1 : 0], columns = of.shape[turned ? 0 : 1];
        return Product::Matrix{.dtype = of.dtype, .rows = rows, .columns = columns, .layout = of.layout};
    };
    Product product{.a = side_by_side(a, ta),
                    .b = side_by_side(b, !tb),
                    .y = {y.dtype, y.shape[0], y.shape[1]},
                    .bias = problem.inputs.size() == 5};
    product.b.transposed = true;
    for (const std::int64_t extent : {product.a.rows, product.a.columns, product.b.rows})
        if (extent % fp8_extent_multiple != 0)
            return Unexpected{
                fmt::format("cuBLASLt multiplies FP8 of extents that are multiples of {}, got {} and {}",
                            fp8_extent_multiple, a.text(), b.text())};
    if (product.bias && problem.inputs[4].dtype != y.dtype)
        return Unexpected{fmt::format("cuBLASLt adds a bias of the output's {}, got {}", name_of(y.dtype),
                                      problem.inputs[4].text())};
    Expected<PreparedKernel> prepared = prepare_product(context, product);
    if (!prepared) return prepared;
    const std::int64_t at_a = ta ? a.shape.elements() : 0, at_b = tb ? 0 : b.shape.elements();
    prepared->launch = [at_a, at_b, multiply = prepared->launch](const Operands& operands) {
        std::vector<const std::byte*> inputs(operands.inputs.begin(), operands.inputs.end());
        inputs[0] += at_a;
        inputs[1] += at_b;
        multiply({inputs, operands.outputs, operands.workspace});
    };
    return prepared;
}

}  // namespace

Expected<Product> product_of(const ProductUnit& unit, const Problem& matmul) {
    if (std::string reason = unit.refusal(matmul); !reason.empty()) return Unexpected{std::move(reason)};
    const auto matrix = [](const Type& type, bool transposed) {
        return Product::Matrix{type.dtype, type.shape[-2], type.shape[-1], transposed};
    };
    const Type& y = matmul.outputs[0];
    Product product{.a = matrix(matmul.inputs[0], matmul.attributes.flag("transpose_a")),
                    .b = matrix(matmul.inputs[1], matmul.attributes.flag("transpose_b")),
                    .y = matrix(y, false),
                    .bias = matmul.inputs.size() == 3};
    for (int axis = 0; axis < y.shape.rank() - 2; ++axis) product.batch *= y.shape[axis];
    product.tf32 = matmul.attributes.has("multiply");
    const std::int64_t terms = product.a.transposed ? product.a.rows : product.a.columns;
    if (terms == 0) return Unexpected{"cuBLASLt adds no bias to sums of nothing"};
    if (product.bias && matmul.inputs[2].dtype != product.y.dtype)
        return Unexpected{fmt::format("cuBLASLt adds a bias of the output's {}, got {}",
                                      name_of(product.y.dtype), matmul.inputs[2].text())};
    return product;
}

Expected<PreparedKernel> prepare_product(Context& context, const Product& product) {
    if (product.epilogue != Product::Epilogue::none && product.batch > 1)
        return Unexpected{"cuBLASLt has no epilogue of GELU for a batch"};
    if ((product.reads_gelu_input() || product.epilogue == Product::Epilogue::gelu_and_input) &&
        product.y.columns % 8 != 0)
        return Unexpected{
            fmt::format("cuBLASLt has GELU's input in rows of a multiple of 8, got {}", product.y.columns)};
    const auto bound = std::make_shared<BoundProduct>(context, product);
    bound->alignment = alignment_of(product, 0);
    auto offered = bound->descriptions.find(context.blas_handle, bound->alignment, max_workspace,
                                            context.algorithms.asked());
    if (!offered) return Unexpected{offered.reason()};
    const auto type = [&](const Product::Matrix& of) {
        if (is_fp8(of.layout)) return Type{of.dtype, {of.rows, of.columns}, of.layout};
        return Type{of.dtype, {product.batch, of.rows, of.columns}};
    };
    bound->chosen = std::make_shared<ChosenAlgorithm>(ChosenAlgorithm{
        .product = text_of(product, bound->alignment),
        .offered = std::move(*offered),
        .inputs = {type(product.a), type(product.b)},
        .outputs = {type(product.y)},
        .multiply = [bound = bound.get()](
                        const auto& algorithm,
                        const Operands& operands) { return bound->multiply(algorithm, operands); },
        .expected = [bound = bound.get()] { return sample_of(bound->product); }});
    const Type row{product.y.dtype, {product.y.columns}};
    if (product.is_scaled()) bound->chosen->inputs.insert(bound->chosen->inputs.end(), 2, Type{});
    if (product.bias) bound->chosen->inputs.push_back(row);
    if (product.reads_gelu_input()) bound->chosen->inputs.push_back(type(product.y));
    if (product.epilogue == Product::Epilogue::gelu_and_input)
        bound->chosen->outputs.push_back(type(product.y));
    if (product.epilogue == Product::Epilogue::gelu_gradient_and_its_sums)
        bound->chosen->outputs.push_back(row);
    context.algorithms.add(bound->chosen);
    bound->workspace = bound->chosen->workspace();
    return PreparedKernel{.launch = [bound](const Operands& operands) { bound->queue(operands); },
                          .workspace = static_cast<std::int64_t>(bound->workspace),
                          .algorithm = [bound] { return bound->chosen->text(); }};
}

std::string ProductUnit::refusal(const Problem& problem) const {
    for (const Type& type : problem.inputs)
        if (type.dtype != operands || has_codes(type.layout))
            return fmt::format("it multiplies {}, got {}", name_of(operands), type.text());
    const bool wants_tf32 = problem.attributes.has("multiply");
    if (wants_tf32 && !tf32)
        return fmt::format("it multiplies {} as it is stored, asked for {}", name_of(operands),
                           problem.attributes.word("multiply"));
    if (tf32 && !wants_tf32) return "it multiplies f32 as tf32, which was not asked for";
    return tf32 ? tf32_refusal() : "";
}

std::vector<ProductUnit> product_units(const Context& context, const std::string& by,
                                       const std::string& matrix_unit) {
    std::vector<ProductUnit> units;
    const auto add = [&](DType operands, bool tf32) {
        const std::string format(tf32 ? "tf32" : name_of(operands));
        const std::string unit = operands == DType::f32 && !tf32 ? context.unit : matrix_unit;
        units.push_back({operands,
                         tf32,
                         fmt::format("{} {}*{}+f32 {}", by, format, format, unit),
                         {.multiply = format, .unit = unit}});
    };
    add(DType::f32, false);
    add(DType::f32, true);
    add(DType::bf16, false);
    add(DType::f16, false);
    return units;
}

void add_contraction_kernels(KernelTable& table, Context& context) {
    for (const ProductUnit& unit : product_units(context, "cublasLt", context.matrix_unit))
        table["matmul"].push_back({.name = unit.name,
                                   .arithmetic = unit.arithmetic,
                                   .prepare = [&context, unit](const Problem& problem) {
                                       return prepare_matmul(context, unit, problem);
                                   }});
    if (!context.fp8_unit.empty())
        table["scaled_matmul"].push_back(
            {.name = "cublasLt fp8*fp8+f32 " + context.fp8_unit,
             .arithmetic = {.multiply = "fp8", .unit = context.fp8_unit},
             .prepare = [&context](const Problem& problem) { return prepare_scaled(context, problem); }});
    add_fused_product_kernels(table, context);
}

}  // namespace mantissa::on_cuda
