#include "mantissa/device/cuda/kernels/product_sample.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mantissa/base/random.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0::on_cuda {

namespace {

constexpr std::int64_t drawn_numbers = std::int64_t{1} << 16;
constexpr std::uint64_t places = 64;

/// An operand full of the numbers.
class Numbers {
  public:
    explicit Numbers(const Product::Matrix& of)
        : dtype_(of.dtype), layout_(of.layout), stored_(numbers_to_multiply(of.dtype, of.layout)) {}
    double operator[](std::int64_t element) const {
        if (is_fp8(layout_))
            return double{value_of(
                find_short_format(name_of(layout_)),
                static_cast<std::uint8_t>(stored_[static_cast<std::size_t>(element % drawn_numbers)]))};
        return load_as_f64(stored_.data(), dtype_, element % drawn_numbers);
    }

  private:
    DType dtype_;
    Layout layout_;
    std::vector<std::byte> stored_;
};

/// A sum in FP64, with the bound of its error in FP32.
struct Sum {
    double value = 0, magnitude = 0, largest = 0;  ///< of absolute terms; partial sum
    std::int64_t terms = 0;

    void add(double term) {
        value += term;
        magnitude += std::abs(term);
        largest = std::max({largest, std::abs(value), std::abs(term)});
        ++terms;
    }
    /// Units of FP8 are said to keep 13 bits of a sum's fraction between two that are added in FP32: terms
    /// are cut there, which magnitudes stand for with four times that.
    double allowed(const Product& product) const {
        const double operands = product.tf32 ? 0x1p-9 : product.is_scaled() ? 0x1p-11 : 0.0;
        return 0x1p-23 * static_cast<double>(terms) * largest + operands * magnitude;
    }
};

struct Gelu {
    double value, derivative;
};

Gelu gelu_at(double x) {
    const double scale = std::sqrt(2 * std::numbers::inv_pi);
    const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x)};
}

class Sample {
  public:
    explicit Sample(const Product& product) : product_(product), a_(product.a), b_(product.b), y_(product.y) {
        if (product.is_scaled()) scale_ = std::pow(Numbers({})[0], 2);
    }

    void add(std::int64_t batch, std::int64_t row, std::int64_t column) {
        const auto& [a, b, y] = std::tie(product_.a, product_.b, product_.y);
        const std::int64_t place = (batch * y.rows + row) * y.columns + column;
        const std::int64_t terms = a.transposed ? a.rows : a.columns;
        Sum sum;
        if (product_.adds) sum.add(y_[place]);
        for (std::int64_t k = 0; k < terms; ++k) {
            const std::int64_t in_a = a.transposed ? k * a.columns + row : row * a.columns + k;
            const std::int64_t in_b = b.transposed ? column * b.columns + k : k * b.columns + column;
            sum.add(scale_ * a_[batch * a.rows * a.columns + in_a] * b_[batch * b.rows * b.columns + in_b]);
        }
        if (product_.bias) sum.add(y_[column]);
        const double exact = y.dtype == DType::i32 ? 0 : sum.allowed(product_);
        using enum Product::Epilogue;
        if (product_.epilogue == gelu_and_input) expect(1, place, sum.value, exact);
        switch (product_.epilogue) {
            case none:
                return expect(0, place, sum.value, exact);
            case gelu:
            case gelu_and_input:
                return expect(0, place, gelu_at(sum.value).value, 2 * exact + 0x1p-10 * std::abs(sum.value));
            case gelu_gradient:
            case gelu_gradient_and_its_sums: {
                const double derivative = gelu_at(y_[place]).derivative;
                const double rounded = std::abs(derivative) * ulp_at(sum.value, y.dtype) / 2;
                return expect(0, place, sum.value * derivative,
                              2 * exact + 0x1p-10 * std::abs(sum.value) + rounded);
            }
        }
    }

    std::vector<ExpectedNumber> expected;

  private:
    void expect(std::size_t output, std::int64_t element, double value, double computed) {
        const DType stored = product_.y.dtype;
        const double rounding = stored == DType::i32 ? 0 : ulp_at(std::abs(value) + computed, stored) / 2;
        expected.push_back(
            {.output = output, .element = element, .value = value, .allowed = computed + rounding});
    }

    const Product& product_;
    Numbers a_, b_, y_;
    double scale_ = 1;  ///< both factors begin as operands of FP32 do
};

}  // namespace

std::vector<std::byte> numbers_to_multiply(DType dtype, Layout layout) {
    const std::size_t size = is_fp8(layout) ? 1 : size_of(dtype);
    std::vector<std::byte> drawn(static_cast<std::size_t>(drawn_numbers) * size);
    const RandomStream random{.seed = 1};
    for (std::int64_t i = 0; i < drawn_numbers; ++i) {
        const double number = 2.0 * random.uniform(static_cast<std::uint64_t>(i)) - 1;
        if (is_fp8(layout))
            drawn[static_cast<std::size_t>(i)] = static_cast<std::byte>(
                code_of(find_short_format(name_of(layout)), static_cast<float>(number)));
        else if (dtype == DType::s8)
            drawn[static_cast<std::size_t>(i)] = static_cast<std::byte>(std::lround(127 * number));
        else if (dtype != DType::i32)  // sums, which are zeros
            store_from_f64(drawn.data(), dtype, i, number);
    }
    return drawn;
}

std::vector<ExpectedNumber> sample_of(const Product& product) {
    Sample sample(product);
    const std::int64_t rows = product.y.rows, columns = product.y.columns, last = product.batch - 1;
    for (const std::int64_t column : {std::int64_t{0}, columns - 1}) {
        sample.add(0, 0, column);
        sample.add(last, rows - 1, column);
    }
    const RandomStream random{.seed = 2};
    const auto below = [&](std::uint64_t draw, std::int64_t end) {
        return std::min(static_cast<std::int64_t>(random.uniform(draw) * static_cast<double>(end)), end - 1);
    };
    for (std::uint64_t place = 4; place < places; ++place)
        sample.add(below(3 * place, product.batch), below(3 * place + 1, rows),
                   below(3 * place + 2, columns));
    return std::move(sample.expected);
}

}  // namespace mantissa::on_cuda
