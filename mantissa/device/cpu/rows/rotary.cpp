// Driver of rotary positions: checks, and blocks of tokens.
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

void rotary(const RowKernels& kernels, const Rotary& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t token = p.heads * p.head_size, table = p.sequence * p.head_size / 2;
    ProblemCheck check("rotary");
    check.size("tokens", p.tokens).size("sequence", p.sequence).size("heads", p.heads);
    check.size("head_size", p.head_size);
    check.that(p.head_size % 2 == 0, "head_size is odd");
    check.that(p.tokens % p.sequence == 0, "tokens is not a multiple of sequence");
    check.input("cosine", p.cosine, table * float_bytes).input("sine", p.sine, table * float_bytes);
    check.input("x", p.x, p.tokens * token).same_type("y", p.y.type, p.x.type);
    check.output("y", p.y, p.tokens * token);
    const Stores stores = check.finish(wanted);
    const std::int64_t bytes = 2 * token * static_cast<std::int64_t>(size_of(p.x.type));
    for_each_range(pool, p.tokens, rows_per_block(bytes),
                   [&](Range tokens, std::int64_t) { kernels.element.rotary(p, tokens, stores); });
}

}  // namespace mantissa::on_cpu
