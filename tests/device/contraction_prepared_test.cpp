// A contraction prepared once and run many times: with other addresses, other threads and another epilogue's
// arguments, cut for one thread or for many, it has the bits of one prepared for the call, in the workspace
// that it says and not a byte more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "mantissa/base/error.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

enum class Ends { plain, bias, custom };

struct PreparedCase {
    const char* name;
    std::array<std::int64_t, 2> batch;
    std::int64_t m, n, k;
    Ends ends = Ends::plain;
    DType type = DType::f32;
    DType out = DType::f32;
    Multiply multiply = Multiply::as_stored;
};

// One way through the code each: what is decided of it is in its name.
constexpr PreparedCase prepared_cases[] = {
    {"one block", {1, 1}, 23, 37, 41},
    {"chunks of the depth, added up in the output", {1, 1}, 70, 59, 1000},
    {"chunks of the depth, partial sums", {1, 1}, 70, 59, 1000, Ends::plain, DType::bf16, DType::bf16},
    {"a packed for all blocks", {1, 1}, 130, 900, 50},
    {"an entry at a time", {2, 1}, 33, 70, 65},
    {"an entry a thread", {3, 6}, 33, 70, 65, Ends::bias},
    {"a single row", {1, 1}, 1, 700, 300},
    {"single rows, with an epilogue", {2, 2}, 1, 300, 70, Ends::bias},
    {"the standard epilogue", {1, 1}, 53, 101, 800, Ends::bias, DType::bf16, DType::bf16},
    {"a custom epilogue", {1, 1}, 70, 59, 1000, Ends::custom},
    {"converted", {1, 1}, 40, 70, 500, Ends::plain, DType::f32, DType::f32, Multiply::tf32},
    {"entries at once, of chunks of the depth", {3, 3}, 150, 230, 1000, Ends::bias},
};

/// The operands of one call; those of each `set` are others.
class Call {
  public:
    Call(const PreparedCase& c, std::uint32_t set)
        : n_(c.n),
          a_(c.type, Transpose::no, c.m, c.k, c.batch, 3),
          b_(c.type, Transpose::yes, c.k, c.n, c.batch, 5),
          bias_(DType::f32, Transpose::no, 1, c.n, {1, 1}, 0),
          out_(c.out, Transpose::no, c.m, c.n, c.batch, 0) {
        a_.fill(Values::normal, 3 * set);
        b_.fill(Values::normal, 3 * set + 1);
        bias_.fill(Values::normal, 3 * set + 2);
        problem_ = {.batch = c.batch,
                    .m = c.m,
                    .n = c.n,
                    .k = c.k,
                    .a = a_.layout(),
                    .b = b_.layout(),
                    .out = out_.layout(),
                    .multiply = c.multiply};
        if (c.ends == Ends::bias) problem_.epilogue = {.bias = true};
        if (c.ends != Ends::custom) return;
        problem_.out = {};
        problem_.custom_epilogue = true;
    }

    const ContractionProblem& problem() const { return problem_; }

    /// The output, by entry, row and column, of a run in a workspace of exactly the size asked for.
    std::vector<double> run(const PreparedContraction& prepared, ThreadPool& pool) {
        constexpr std::size_t guard = 4096;
        const std::size_t bytes = prepared.workspace_bytes(pool.threads());
        Buffer workspace(bytes + guard);
        std::ranges::fill(workspace.as<std::byte>(), std::byte{0xff});
        const CopiedSums copy{static_cast<float*>(out_.data()), n_};
        contract(prepared,
                 {.a = a_.data(),
                  .b = b_.data(),
                  .out = out_.data(),
                  .bias = bias_.data(),
                  .epilogue = copy_sums,
                  .epilogue_args = &copy},
                 workspace.as<std::byte>().subspan(0, bytes), pool);
        const auto behind = workspace.as<std::byte>().subspan(bytes);
        EXPECT_EQ(std::ranges::count(behind, std::byte{0xff}), std::ssize(behind));
        std::vector<double> out;
        for (std::int64_t entry = 0; entry < problem_.entries(); ++entry)
            for (std::int64_t i = 0; i < problem_.m; ++i)
                for (std::int64_t j = 0; j < n_; ++j) out.push_back(out_.get(entry, i, j));
        return out;
    }

  private:
    std::int64_t n_;
    Operand a_, b_, bias_, out_;
    ContractionProblem problem_;
};

/// A value that was copied, and outlives the problem and the value that it was copied from.
template <class How>
PreparedContraction prepared_elsewhere(const PreparedCase& c, const How& how, int threads) {
    auto problem = std::make_unique<ContractionProblem>(Call(c, 0).problem());
    problem->threads = threads;
    auto first = std::make_unique<PreparedContraction>(prepare_contraction(*problem, how));
    PreparedContraction copy = *first;
    *problem = {};
    *first = {};
    return copy;
}

template <class How>
void expect_the_same(const PreparedCase& c, const How& how, const std::string& level) {
    const PreparedContraction for_one = prepared_elsewhere(c, how, 1),
                              for_many = prepared_elsewhere(c, how, 64);
    std::vector<std::vector<double>> seen;
    for (const std::uint32_t set :
         testing::sweeps_are_whole() ? std::vector{1u, 2u, 3u} : std::vector{1u, 2u}) {
        Call fresh(c, set);
        ThreadPool one(1);
        seen.push_back(fresh.run(prepare_contraction(fresh.problem(), how), one));
        for (const int threads : testing::some_of<int>({1, 2, 3}, 2)) {
            ThreadPool pool(threads);
            for (const PreparedContraction* prepared : {&for_one, &for_many}) {
                Call again(c, set);
                EXPECT_EQ(again.run(*prepared, pool), seen.back())
                    << c.name << " at " << level << ", set " << set << ", " << threads << " threads, cut for "
                    << prepared->problem.threads;
            }
        }
    }
    for (std::size_t set = 1; set < seen.size(); ++set)
        EXPECT_NE(seen[set - 1], seen[set]) << c.name << " at " << level;
}

TEST(PreparedContraction, RunsManyTimesWithTheBitsOfOnePreparedForTheCall) {
    for (const PreparedCase& c : prepared_cases) {
        for (const Isa isa : testing::some_of(testable_levels(), 2))
            expect_the_same(c, isa, std::string(name_of(isa)));
        if (c.type != DType::bf16) continue;
        expect_the_same(c, contraction_kernels_tile_twin(), "the twin of tiles");
        expect_the_same(c, contraction_kernels_dot_twin(), "the twin of dot products");
    }
}

TEST(PreparedContraction, SaysWhatItDecided) {
    const auto prepared = [](const PreparedCase& c, int threads = 1) {
        ContractionProblem problem = Call(c, 0).problem();
        problem.threads = threads;
        return prepare_contraction(problem, best_isa());
    };
    const auto way_of = [&](std::size_t i) { return prepared(prepared_cases[i]).way; };
    EXPECT_TRUE(std::holds_alternative<PreparedMatrices>(way_of(0)));
    EXPECT_GT(std::get<PreparedMatrices>(way_of(1)).blocking.depth_chunks, 1);
    EXPECT_GT(std::get<PreparedMatrices>(way_of(3)).blocking.a_groups, 0);
    EXPECT_FALSE(std::get<PreparedMatrices>(way_of(4)).blocking.entry_per_thread);
    EXPECT_TRUE(std::get<PreparedMatrices>(way_of(5)).blocking.entry_per_thread);
    EXPECT_EQ(std::get<PreparedMatrices>(prepared(prepared_cases[11], 64).way).blocking.entries_at_once, 9);
    EXPECT_EQ(std::get<PreparedMatrices>(way_of(11)).blocking.entries_at_once, 1);
    EXPECT_TRUE(std::holds_alternative<PreparedRows>(way_of(6)));
    EXPECT_TRUE(std::holds_alternative<PreparedRows>(way_of(7)));
    EXPECT_EQ(prepared(prepared_cases[0]).finish, Finish::none);
    EXPECT_EQ(prepared(prepared_cases[8]).finish, Finish::standard);
    EXPECT_EQ(prepared(prepared_cases[9]).finish, Finish::custom);
}

TEST(PreparedContraction, OfNothingNeedsNothing) {
    const PreparedContraction prepared = prepare_contraction(
        ContractionProblem{
            .m = 0, .n = 7, .k = 3, .a = {.leading = 3}, .b = {.leading = 7}, .out = {.leading = 7}},
        best_isa());
    ThreadPool pool(2);
    EXPECT_EQ(prepared.workspace_bytes(2), 0u);
    EXPECT_EQ(prepared.rows_of_item(), 1);
    contract(prepared, {}, {}, pool);  // without any memory
}

TEST(PreparedContraction, IsNotMadeOfWhatTheLevelRefuses) {
    const ContractionProblem problem{
        .m = 4, .n = 4, .k = 4, .a = {.leading = 4}, .b = {.leading = 3}, .out = {.leading = 4}};
    try {
        prepare_contraction(problem, Isa::generic);
        FAIL() << "it was prepared";
    } catch (const InternalError& error) {
        EXPECT_EQ(std::string(error.what())
                      .find("contraction: b has rows of 4 elements but a leading dimension of 3"),
                  std::string(error.what()).find("contraction:"));
        EXPECT_NE(std::string(error.what()).find("contraction:"), std::string::npos);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
