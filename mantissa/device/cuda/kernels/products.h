// Matrix products by cuBLASLt, for operations that consist of several.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0::on_cuda {

/// A unit that kernels of contractions multiply by.
struct ProductUnit {
    DType operands = DType::f32;
    bool tf32 = false;  ///< FP32 operands, as TF32
    std::string name;
    Arithmetic arithmetic = {};

    /// Why the unit does not take the operands; empty if it does.
    std::string refusal(const Problem& problem) const;
};

/// FP32, and TF32, BF16 and FP16 on `matrix_unit`, as `by` multiplies them.
std::vector<ProductUnit> product_units(const Context& context, const std::string& by,
                                       const std::string& matrix_unit);

/// A product of one batch of matrices, as a request to the library. For bytes, the sums are i32.
struct Product {
    struct Matrix {
        DType dtype = DType::f32;
        std::int64_t rows = 0, columns = 0;  ///< as they are stored, row by row
        bool transposed = false;
        Layout layout = Layout::row_major;  ///< or FP8

        /// Bytes of an element.
        std::size_t size() const { return is_fp8(layout) ? 1 : size_of(dtype); }
        std::string_view name() const {
            return is_fp8(layout) ? mantissa::name_of(layout) : mantissa::name_of(dtype);
        }
    };
    /// The epilogue of the sums before they are stored.
    enum class Epilogue : std::uint8_t {
        none,
        gelu,
        gelu_and_input,              ///< the sums are stored, too
        gelu_gradient,               ///< they are multiplied by GELU's derivative at its input
        gelu_gradient_and_its_sums,  ///< and the results are added up over rows
    };
    Matrix a, b, y;
    std::int64_t batch = 1;
    bool bias = false, tf32 = false;
    bool adds = false;  ///< to y's former contents
    Epilogue epilogue = Epilogue::none;

    /// FP8 alone: operands 2 and 3 are factors of the sums, f32.
    bool is_scaled() const { return is_fp8(a.layout); }
    /// The bias' place among the operands.
    std::size_t place_of_bias() const { return is_scaled() ? 4 : 2; }
    bool reads_gelu_input() const {
        return epilogue == Epilogue::gelu_gradient || epilogue == Epilogue::gelu_gradient_and_its_sums;
    }
};

/// The product of a matmul. Or the reason why the unit does not make it, where the library would not or there
/// is nothing to add up.
Expected<Product> product_of(const ProductUnit& unit, const Problem& matmul);

/// Operands a, b, factors of FP8, a bias where there is one, and GELU's input where its gradient is made;
/// outputs y, and the epilogue's further results. None of its extents is 0.
Expected<PreparedKernel> prepare_product(Context& context, const Product& product);

/// Adds the kernels of fused nodes that are a product with an epilogue that cuBLASLt has. The table must stay
/// at its address.
void add_fused_product_kernels(KernelTable& table, Context& context);

}  // namespace mantissa::on_cuda
