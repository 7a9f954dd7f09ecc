#include "tests/codegen/ptx_threads.h"

#include <ucontext.h>

#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::testing {

namespace {

enum class State : std::uint8_t { runs, at_barrier, in_shuffle, done };

constexpr std::size_t stack_bytes = std::size_t{64} << 10;

struct Block {
    explicit Block(int threads)
        : count(threads),
          contexts(static_cast<std::size_t>(threads)),
          stacks(static_cast<std::size_t>(threads), std::vector<char>(stack_bytes)),
          states(static_cast<std::size_t>(threads)),
          shuffles(static_cast<std::size_t>(threads)),
          numbers{std::vector<float>(static_cast<std::size_t>(threads)),
                  std::vector<float>(static_cast<std::size_t>(threads))} {}

    int count;
    std::vector<ucontext_t> contexts;
    std::vector<std::vector<char>> stacks;
    std::vector<State> states;
    std::vector<int> shuffles;      // by thread: how many it has made
    std::vector<float> numbers[2];  // what threads give each other, in every other shuffle
    ucontext_t scheduler = {};
    std::int32_t block = 0;
    std::size_t thread = 0;
    const std::function<void()>* body = nullptr;

    void wait(State why) {
        states[thread] = why;
        swapcontext(&contexts[thread], &scheduler);
    }
};

thread_local Block* running = nullptr;

void start() {
    (*running->body)();
    running->wait(State::done);
}

void prepare(Block& block, std::size_t thread) {
    ucontext_t& context = block.contexts[thread];
    getcontext(&context);
    context.uc_stack.ss_sp = block.stacks[thread].data();
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
    block.states[thread] = State::runs;
}

/// Runs each thread up to where it waits; gives what all of them wait for.
State turn(Block& block) {
    for (block.thread = 0; block.thread < static_cast<std::size_t>(block.count); ++block.thread)
        swapcontext(&block.scheduler, &block.contexts[block.thread]);
    for (const State state : block.states)
        if (state != block.states[0]) throw InternalError("threads of a block wait in different places");
    return block.states[0];
}

}  // namespace

std::int32_t ptx_thread() { return static_cast<std::int32_t>(running->thread); }
std::int32_t ptx_block() { return running->block; }
void ptx_barrier() { running->wait(State::at_barrier); }

float ptx_shuffle(std::int32_t members, float value, std::int32_t distance, std::int32_t clamp) {
    Block& block = *running;
    const std::size_t thread = block.thread;
    check(members == -1 && clamp == 31, "shuffles of whole warps");
    // Two sets of numbers: who is ahead writes the next before others have read this one.
    std::vector<float>& numbers = block.numbers[block.shuffles[thread]++ % 2];
    numbers[thread] = value;
    block.wait(State::in_shuffle);
    return numbers[thread ^ static_cast<std::size_t>(distance)];
}

void run_blocks(std::int64_t blocks, int threads, const std::function<void()>& body) {
    Block block(threads);
    block.body = &body;
    running = &block;
    for (std::int64_t i = 0; i < blocks; ++i) {
        block.block = static_cast<std::int32_t>(i);
        for (std::size_t thread = 0; thread < static_cast<std::size_t>(threads); ++thread)
            prepare(block, thread);
        while (turn(block) != State::done) {
        }
    }
    running = nullptr;
}

}  // namespace mantissa::testing
