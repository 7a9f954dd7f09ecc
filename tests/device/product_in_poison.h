// A product with weights of few bits, run where nothing has been written.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::on_cpu {

/// Its output [m, n], which began as NaN, as its workspace did.
template <auto multiply, auto workspace_of, class Product>
std::vector<float> product_in_poison(Product problem, int threads, Isa isa) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<std::size_t>(problem.m * problem.n), NAN);
    Buffer workspace(static_cast<std::size_t>(workspace_of(problem, isa, threads)));
    std::memset(workspace.as<std::byte>().data(), 0xff, workspace.as<std::byte>().size());
    problem.y = y.data();
    problem.workspace = workspace.as<std::byte>().data();
    multiply(problem, pool, isa);
    return y;
}

}  // namespace mantissa::on_cpu
