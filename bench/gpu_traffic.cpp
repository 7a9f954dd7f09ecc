// The GPU memory that kernels of a training step touch, compared with the size of their operands and results:
// counted by the emulated GPU in sectors of 32 bytes, for the first, the middle and the last block of each
// grid.
//
// A step of GPT-2 124M's widths with all passes runs operation by operation. A block's repeated accesses, and
// accesses to other blocks' sectors, come from the caches: a share above one is traffic between caches and
// multiprocessors. Nodes with products of the library are not counted. Nothing else of the step runs, so its
// numbers mean nothing.
//
// BENCH_LAYERS (2), BENCH_BATCH (16), BENCH_SEQUENCE (1024), BENCH_POLICY (bf16); BENCH_KERNELS=1: also
// prints each launch.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/trainer.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

constexpr double sector = 32;

/// Bytes that the blocks of a launch touch, counted block by block. If the first equals the middle one, all
/// but the last are taken as equal. Otherwise they grow or shrink linearly, as under a causal mask, and
/// Simpson's rule is exact.
double bytes_touched(const cuda::LaunchCount& count) {
    const auto of = [&](std::size_t block) {
        return sector * static_cast<double>(count.traffic[block].loaded + count.traffic[block].stored);
    };
    const auto blocks = static_cast<double>(count.blocks);
    if (count.traffic.size() == 1) return of(0);
    if (count.traffic.size() == 2) return of(0) + of(1);
    return of(0) == of(1) ? of(0) * (blocks - 1) + of(2) : blocks * (of(0) + 4 * of(1) + of(2)) / 6;
}

struct Line {
    std::int64_t nodes = 0, launches = 0;
    double own = 0, touched = 0, largest = 0;  // bytes, bytes, share of one node
};

class Traffic {
  public:
    void add(const PlannedNode& planned, const Node& node, const std::vector<cuda::LaunchCount>& counts) {
        if (counts.empty() || planned.kernel.find("cublasLt") != std::string::npos) return;
        if (on_cpu::option("BENCH_KERNELS", 0)) print_launches(planned, node, counts);
        double touched = 0;
        for (const cuda::LaunchCount& count : counts) touched += bytes_touched(count);
        const auto own = static_cast<double>(planned.cost.bytes);
        Line& line =
            lines_[{std::string(node.op->name), std::string(name_of(node.origin.stage)), planned.kernel}];
        ++line.nodes;
        line.launches += static_cast<std::int64_t>(counts.size());
        line.own += own;
        line.touched += touched;
        line.largest = std::max(line.largest, touched / own);
    }

    void print() const {
        constexpr const char* row = "{:18} {:9} {:>6} {:>8} {:>10} {:>10} {:>6} {:>8}  {}\n";
        fmt::print(row, "operation", "pass", "nodes", "launches", "own MB", "touched MB", "share", "largest",
                   "kernel");
        Line all;
        for (const auto& [key, line] : lines_) {
            const auto& [op, pass, kernel] = key;
            print_line(row, op, pass, line, kernel);
            all.nodes += line.nodes;
            all.launches += line.launches;
            all.own += line.own;
            all.touched += line.touched;
            all.largest = std::max(all.largest, line.largest);
        }
        print_line(row, "all", "", all, "");
    }

  private:
    static void print_launches(const PlannedNode& planned, const Node& node,
                               const std::vector<cuda::LaunchCount>& counts) {
        fmt::print("{}, {} bytes\n", node.op->name, planned.cost.bytes);
        for (const cuda::LaunchCount& count : counts) {
            fmt::print("    {}: {} blocks of {} threads", count.kernel, count.blocks, count.threads);
            for (const cuda::BlockTraffic& block : count.traffic)
                fmt::print(", {} + {} sectors", block.loaded, block.stored);
            fmt::print("\n");
        }
    }

    static void print_line(const char* row, const std::string& op, const std::string& pass, const Line& line,
                           const std::string& kernel) {
        fmt::print(fmt::runtime(row), op, pass, line.nodes, line.launches,
                   fmt::format("{:.3f}", line.own / 1e6), fmt::format("{:.3f}", line.touched / 1e6),
                   fmt::format("{:.3f}", line.touched / line.own), fmt::format("{:.3f}", line.largest),
                   kernel);
    }

    std::map<std::tuple<std::string, std::string, std::string>, Line> lines_;
};

void run() {
    cuda::EmulatedGpu gpu({.architecture = "sm_90", .races = false, .sampled = true});
    const auto device = std::move(*make_cuda_device({gpu.driver(), gpu.cublaslt(), gpu.cudnn()}));
    nn::Gpt2Config config = nn::gpt2_config("gpt2-124m");
    config.layers = on_cpu::option("BENCH_LAYERS", 2);
    const std::int64_t batch = on_cpu::option("BENCH_BATCH", 16),
                       sequence = on_cpu::option("BENCH_SEQUENCE", 1024);
    const char* const asked = std::getenv("BENCH_POLICY");
    const Policy policy = find_policy(asked ? asked : "bf16");
    TrainerOptions options{.batch = batch, .policy = policy};
    options.loss_scale = default_loss_scale(policy);
    Trainer trainer(*device, nn::gpt2_model(config, sequence), options);

    std::vector<std::int32_t> tokens, targets;
    const RandomStream random{.seed = 1};
    for (std::int64_t i = 0; i < 2 * batch * sequence; ++i)
        (i % 2 ? targets : tokens)
            .push_back(static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) %
                                                 static_cast<std::uint32_t>(config.vocabulary)));
    fmt::print("{}, {} layers, {} x {} tokens, {}, emulated sm_90\n", config.name, config.layers, batch,
               sequence, policy.name);
    Traffic traffic;
    trainer.step_run_by({tokens, targets}, 1e-4, [&](Execution& micro_batch, bool) {
        const Plan& plan = micro_batch.plan();
        std::map<NodeId, const PlannedNode*> planned;
        for (const PlannedNode& each : plan.nodes()) planned[each.node] = &each;
        gpu.count(true);
        const auto before = [&](NodeId) {
            device->wait(*device->record(Queue::work));  // work queued before the step began
            gpu.take_counts();
            return true;
        };
        const auto after = [&](NodeId node) {
            traffic.add(*planned.at(node), plan.graph().node(node), gpu.take_counts());
            return true;
        };
        micro_batch.run_while(before, after);
    });
    traffic.print();
}

}  // namespace
}  // namespace mantissa

int main() { mantissa::run(); }
