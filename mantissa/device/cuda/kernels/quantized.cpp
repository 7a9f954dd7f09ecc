// Quantised weights and their products. Few rows are multiplied by a kernel of our own, which reads the
// weights once, many rows by cuBLASLt's products of bytes; the library has none of four bits.
#include <fmt/format.h>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/products.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Up to so many rows share a warp's reads of the weights.
constexpr std::int64_t max_rows_as_they_lie = 8;
/// The unit of extents of bytes that cuBLASLt asks for.
constexpr std::int64_t unit = codegen::numbers_of_word;

std::int64_t apart(std::int64_t bytes) { return align_up(bytes, 256); }

std::uint64_t behind(const std::byte* address, std::int64_t bytes) {
    return address_of(address) + static_cast<std::uint64_t>(bytes);
}

/// A kernel and how many blocks do all of it.
struct Bound {
    std::shared_ptr<const GpuKernel> kernel;
    std::int64_t blocks = 0;

    Bound(Context& context, std::string name, auto code) {
        codegen::GridKernel grid{.name = std::move(name), .code = std::move(code)};
        blocks = codegen::blocks_of(grid);
        kernel = context.modules.add(std::move(grid));
    }
    void queue(const Context& context, std::vector<std::uint64_t> parameters) const {
        launch(context, *kernel, blocks, std::move(parameters));
    }
};

Expected<PreparedKernel> prepare_weight(Context& context, const Problem& problem) {
    const Type& w = problem.inputs[0];
    const std::int64_t rows = w.shape[0], depth = w.shape[1];
    if (rows == 0) return PreparedKernel{.launch = [](const Operands&) {}};
    const std::string format = problem.attributes.word("format");
    const std::string name = fmt::format("quantise_{}_{}", name_of(w.dtype), format);
    const Bound bound =
        format == "s4"
            ? Bound(context, name, codegen::WeightGroupsKernel{.from = w.dtype, .rows = rows, .depth = depth})
            : Bound(context, name,
                    codegen::QuantizeKernel{.from = w.dtype, .rows = rows, .depth = depth, .pitch = depth});
    return PreparedKernel{.launch = [&context, bound](const Operands& operands) {
        bound.queue(context, {address_of(operands.inputs[0]), address_of(operands.outputs[0]),
                              address_of(operands.outputs[1])});
    }};
}

/// y [rows, columns] of x [rows, depth].
struct Extents {
    std::int64_t rows = 0, columns = 0, depth = 0;
    bool four_bits = false, bias = false;

    explicit Extents(const Problem& problem)
        : rows(problem.inputs[0].shape[0]),
          columns(problem.inputs[1].shape[0]),
          depth(problem.inputs[0].shape[1]),
          four_bits(problem.attributes.word("multiply") == "s4"),
          bias(problem.inputs.size() == 4) {}

    std::int64_t groups() const { return four_bits ? ceil_div(depth, weights_of_group) : 1; }
    /// Bytes of a row of x.
    std::int64_t pitch() const { return four_bits ? groups() * weights_of_group : align_up(depth, unit); }
};

/// Rows of x in the workspace, from `at` on, and their scales behind them.
struct QuantizedRows {
    Bound quantize;
    std::int64_t at = 0, scales = 0, end = 0;

    QuantizedRows(Context& context, const Problem& problem, const Extents& of, std::int64_t from)
        : quantize(context, fmt::format("quantise_rows_{}", name_of(problem.inputs[0].dtype)),
                   codegen::QuantizeKernel{.from = problem.inputs[0].dtype,
                                           .rows = of.rows,
                                           .depth = of.depth,
                                           .by_groups = of.four_bits,
                                           .pitch = of.pitch()}),
          at(from),
          scales(from + apart(of.rows * of.pitch())),
          end(scales + apart(of.rows * of.groups() * 4)) {}

    void queue(const Context& context, const Operands& operands) const {
        quantize.queue(context, {address_of(operands.inputs[0]), behind(operands.workspace, at),
                                 behind(operands.workspace, scales)});
    }
};

/// Columns from `first` on, by a kernel that reads w in place.
struct ProductAsItLies {
    Bound kernel;
    Extents of;
    std::int64_t first = 0;

    ProductAsItLies(Context& context, const Extents& all, std::int64_t from)
        : kernel(context, fmt::format("rows_times_{}", all.four_bits ? "s4" : "s8"),
                 codegen::QuantizedRowsKernel{.four_bits = all.four_bits,
                                              .rows = all.rows,
                                              .columns = all.columns - from,
                                              .depth = all.depth,
                                              .pitch = all.pitch(),
                                              .leading = all.columns,
                                              .bias = all.bias}),
          of(all),
          first(from) {}

    void queue(const Context& context, const Operands& operands, const QuantizedRows& x) const {
        const std::int64_t of_row = of.four_bits ? of.depth / 2 : of.depth;
        std::vector<std::uint64_t> parameters{
            behind(operands.workspace, x.at), behind(operands.workspace, x.scales),
            behind(operands.inputs[1], first * of_row),
            behind(operands.inputs[2], first * of.groups() * (of.four_bits ? 2 : 4))};
        if (of.bias) parameters.push_back(behind(operands.inputs[3], first * 4));
        parameters.push_back(behind(operands.outputs[0], first * 4));
        kernel.queue(context, std::move(parameters));
    }
};

Expected<PreparedKernel> prepare_as_it_lies(Context& context, const std::string& format,
                                            const Problem& problem) {
    if (const std::string asked = problem.attributes.word("multiply"); asked != format)
        return Unexpected{fmt::format("it multiplies {}, asked for {}", format, asked)};
    if (problem.outputs[0].shape.elements() == 0) return PreparedKernel{.launch = [](const Operands&) {}};
    const Extents of(problem);
    const QuantizedRows x(context, problem, of, 0);
    const ProductAsItLies product(context, of, 0);
    Cost cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    cost.bytes += 2 * of.rows * of.pitch();  // second reads of w come from the cache
    return PreparedKernel{.launch =
                              [&context, x, product](const Operands& operands) {
                                  x.queue(context, operands);
                                  product.queue(context, operands, x);
                              },
                          .workspace = x.end,
                          .launches = 2,
                          .cost = cost};
}

/// Sums by the library, scaled in place if it takes rows as long as y's. Else the sums are apart, and the
/// last one to three columns are made without the library.
Expected<PreparedKernel> prepare_many_rows(Context& context, const Problem& problem) {
    if (const std::string asked = problem.attributes.word("multiply"); asked != "s8")
        return Unexpected{fmt::format("cuBLASLt multiplies no {}", asked)};
    const Extents of(problem);
    if (of.rows <= max_rows_as_they_lie)
        return Unexpected{
            fmt::format("up to {} rows read the weights as they lie, got {}", max_rows_as_they_lie, of.rows)};
    const std::int64_t columns = of.columns / unit * unit;
    if (of.depth % unit != 0 || of.depth == 0 || columns == 0)
        return Unexpected{
            fmt::format("cuBLASLt multiplies bytes in rows of a multiple of {}, and so many, got {}", unit,
                        problem.inputs[1].text())};
    const auto product = prepare_product(context, {.a = {DType::s8, of.rows, of.depth},
                                                   .b = {DType::s8, columns, of.depth, true},
                                                   .y = {DType::i32, of.rows, columns}});
    if (!product) return Unexpected{product.reason()};
    const QuantizedRows x(context, problem, of, apart(product->workspace));
    const bool in_place = columns == of.columns;
    const std::int64_t sums_at = x.end, bytes_of_sums = of.rows * columns * 4;
    const Bound scale(context, "scale_sums",
                      codegen::ScaledSumsKernel{
                          .rows = of.rows, .columns = columns, .leading = of.columns, .bias = of.bias});
    std::optional<ProductAsItLies> rest;
    if (!in_place) rest.emplace(context, of, columns);
    const auto queue = [=, &context, multiply = product->launch](const Operands& operands) {
        x.queue(context, operands);
        std::byte* const sums = in_place ? operands.outputs[0] : operands.workspace + sums_at;
        const std::byte* const inputs[] = {operands.workspace + x.at, operands.inputs[1]};
        multiply({inputs, {&sums, 1}, operands.workspace});
        std::vector<std::uint64_t> parameters{address_of(sums), behind(operands.workspace, x.scales),
                                              address_of(operands.inputs[2])};
        if (of.bias) parameters.push_back(address_of(operands.inputs[3]));
        parameters.push_back(address_of(operands.outputs[0]));
        scale.queue(context, std::move(parameters));
        if (rest) rest->queue(context, operands, x);
    };
    Cost cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    cost.bytes += 2 * (of.rows * of.pitch() + bytes_of_sums);
    return PreparedKernel{.launch = queue,
                          .workspace = x.end + (in_place ? 0 : bytes_of_sums),
                          .launches = rest ? 4 : 3,
                          .cost = cost,
                          .algorithm = product->algorithm};
}

}  // namespace

void add_quantized_kernels(KernelTable& table, Context& context) {
    table["quantize_weight"].push_back(
        {.name = "quantise " + context.unit,
         .arithmetic = {.unit = context.unit},
         .prepare = [&context](const Problem& problem) { return prepare_weight(context, problem); }});
    std::vector<Kernel>& products = table["quantized_matmul"];
    products.push_back(
        {.name = fmt::format("cublasLt s8*s8+s32 {}", context.matrix_unit),
         .arithmetic = {.multiply = "s8", .sums = DType::i32, .unit = context.matrix_unit},
         .prepare = [&context](const Problem& problem) { return prepare_many_rows(context, problem); }});
    for (const std::string format : {"s8", "s4"})
        products.push_back({.name = fmt::format("dp4a {}*s8+s32 {}", format, context.unit),
                            .arithmetic = {.multiply = "s8", .sums = DType::i32, .unit = context.unit},
                            .prepare = [&context, format](const Problem& problem) {
                                return prepare_as_it_lies(context, format, problem);
                            }});
}

}  // namespace mantissa::on_cuda
