#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::cpu {

namespace {

constexpr std::int64_t line = 64;  // bytes of a cache line

std::int64_t rounded_up(std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; }

/// As few chunks as the most rows allow, and those even: a last chunk of few rows would read all of w for
/// them. In multiples of 32, since no level's panels are higher.
std::int64_t rows_of_chunk(const LinearCrossEntropy& p) {
    const std::int64_t chunks = (p.rows + p.most_rows_of_chunk - 1) / p.most_rows_of_chunk;
    return std::min({p.rows, p.most_rows_of_chunk, rounded_up((p.rows + chunks - 1) / chunks, 32)});
}

std::int64_t columns_of(const LinearCrossEntropy& p) { return p.columns == 0 ? p.classes : p.columns; }

/// Elements between rows of logits: whole cache lines, so that every row starts on one.
std::int64_t stride_of(const LinearCrossEntropy& p) {
    return rounded_up(columns_of(p), line / static_cast<std::int64_t>(size_of(p.dtype)));
}

/// The three contractions of a chunk.
struct Products {
    ContractionProblem logits, dx, dw;

    Products(const LinearCrossEntropy& p, std::int64_t rows) {
        const MatrixLayout x{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout table{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout chunk{.dtype = p.dtype, .leading = stride_of(p)};
        logits = {.m = rows, .n = columns_of(p), .k = p.channels, .a = x, .b = table, .out = chunk};
        logits.b.transpose = Transpose::yes;
        dx = {.m = rows, .n = p.channels, .k = columns_of(p), .a = chunk, .b = table, .out = x};
        dw = {.m = columns_of(p),
              .n = p.channels,
              .k = rows,
              .a = chunk,
              .b = x,
              .out = {.leading = p.channels}};
        dw.a.transpose = Transpose::yes;
        logits.multiply = dx.multiply = dw.multiply = p.multiply;
    }
};

/// Where the parts of the workspace begin.
struct Workspace {
    std::size_t lse, losses, contraction, bytes;

    Workspace(const LinearCrossEntropy& p, Isa isa, int threads) {
        const std::int64_t chunk = rows_of_chunk(p);
        const auto lines = [](std::int64_t size) { return static_cast<std::size_t>(rounded_up(size, line)); };
        lse = lines(chunk * stride_of(p) * static_cast<std::int64_t>(size_of(p.dtype)));
        losses = lse + lines(chunk * 4);
        contraction = losses + lines(p.rows * 4);
        bytes = contraction;
        const std::int64_t last = p.rows % chunk;
        for (const std::int64_t rows : {chunk, last == 0 ? chunk : last}) {
            const Products products(p, rows);
            std::size_t most = workspace_bytes(products.logits, isa, threads);
            if (p.gradients)
                most = std::max({most, workspace_bytes(products.dx, isa, threads),
                                 workspace_bytes(products.dw, isa, threads)});
            bytes = std::max(bytes, contraction + most);
        }
    }
};

class Run {
  public:
    Run(const LinearCrossEntropy& problem, const LinearCrossEntropyArguments& arguments,
        std::span<std::byte> workspace, ThreadPool& pool, Isa isa)
        : p_(problem),
          o_(arguments),
          kernels_(row_kernels(isa)),
          pool_(pool),
          isa_(isa),
          places_(problem, isa, pool.threads()),
          logits_{workspace.data(), problem.dtype},
          lse_(reinterpret_cast<float*>(workspace.data() + places_.lse)),
          losses_(reinterpret_cast<float*>(workspace.data() + places_.losses)),
          contraction_(workspace.subspan(places_.contraction)) {}

    void run() {
        const std::int64_t chunk = rows_of_chunk(p_);
        for (std::int64_t first = 0; first < p_.rows; first += chunk) {
            const std::int64_t rows = std::min(chunk, p_.rows - first);
            const Products products(p_, rows);
            forward(products, first, rows);
            if (p_.gradients) backward(products, first, rows);
        }
        *o_.loss = mean_of(losses_, p_.rows);
    }

  private:
    const std::byte* x_at(std::int64_t row) const {
        return static_cast<const std::byte*>(o_.x) + offset(row);
    }
    std::size_t offset(std::int64_t row) const {
        return static_cast<std::size_t>(row * p_.channels) * size_of(p_.dtype);
    }
    void multiply(const ContractionProblem& problem, const void* a, const void* b, void* out) {
        contract(problem, {.a = a, .b = b, .out = out}, contraction_, pool_, isa_);
    }

    void forward(const Products& products, std::int64_t first, std::int64_t rows) {
        multiply(products.logits, x_at(first), o_.w, logits_.data);
        cross_entropy(kernels_,
                      {.rows = rows,
                       .classes = p_.classes,
                       .stride = stride_of(p_),
                       .logits = {logits_.data, logits_.type},
                       .targets = o_.targets + first,
                       .loss = losses_ + first,
                       .lse = lse_},
                      pool_);
    }

    void backward(const Products& products, std::int64_t first, std::int64_t rows) {
        cross_entropy_grad(kernels_,
                           {.rows = rows,
                            .classes = p_.classes,
                            .stride = stride_of(p_),
                            .logits = {logits_.data, logits_.type},
                            .targets = o_.targets + first,
                            .lse = lse_,
                            .scale = o_.seed / static_cast<float>(p_.rows),
                            .dlogits = logits_},
                           pool_);
        multiply(products.dx, logits_.data, o_.w, static_cast<std::byte*>(o_.dx) + offset(first));
        ContractionProblem dw = products.dw;
        if (first > 0) dw.store = Store::accumulate;
        multiply(dw, logits_.data, x_at(first), o_.dw);
    }

    const LinearCrossEntropy& p_;
    const LinearCrossEntropyArguments& o_;
    const RowKernels& kernels_;
    ThreadPool& pool_;
    Isa isa_;
    Workspace places_;
    View logits_;    // [chunk, stride], then their gradients
    float* lse_;     // [chunk]
    float* losses_;  // [N]
    std::span<std::byte> contraction_;
};

}  // namespace

std::string refusal(const LinearCrossEntropy& p, Isa isa) {
    if (p.rows < 1 || p.channels < 1 || p.classes < 1) return "it needs one element or more";
    if (columns_of(p) < p.classes)
        return fmt::format("{} classes do not lie in {} columns", p.classes, p.columns);
    const Products products(p, rows_of_chunk(p));
    for (const ContractionProblem* product : {&products.logits, &products.dx, &products.dw})
        if (std::string reason = refusal(*product, isa); !reason.empty()) return reason;
    return "";
}

std::size_t workspace_bytes(const LinearCrossEntropy& problem, Isa isa, int threads) {
    return Workspace(problem, isa, threads).bytes;
}

void linear_cross_entropy(const LinearCrossEntropy& problem, const LinearCrossEntropyArguments& arguments,
                          std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
    check(problem.most_rows_of_chunk >= 1, "a chunk of logits has one row or more");
    if (const std::string reason = refusal(problem, isa); !reason.empty())
        throw InternalError("linear_cross_entropy: " + reason);
    check(workspace.size() >= workspace_bytes(problem, isa, pool.threads()),
          "the workspace of linear_cross_entropy is too small");
    check_targets("linear_cross_entropy", arguments.targets, problem.rows, problem.classes);
    Run(problem, arguments, workspace, pool, isa).run();
}

}  // namespace mantissa::cpu
