// Each judgement of the emulated GPU held to a planted fault, and to the same kernel without it.
#include <gtest/gtest.h>

#include <cctype>

#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

using cuda::DevicePtr;
using cuda::Result;

/// Runs a kernel with the address of 64 numbers and of 64 results; gives the result and what was said.
struct Verdict {
    Result result = Result::success;
    std::string words;
};

Verdict judge(const std::string& body, const GpuUnderTest::Launch& launch = {},
              const std::string& target = "sm_80", const std::string& version = "7.0",
              const std::string& gpu_name = "sm_80") {
    GpuUnderTest gpu({.architecture = gpu_name, .threads = 1});
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < 64; ++i) numbers.push_back(i);
    const DevicePtr in = gpu.upload(numbers), out = gpu.allocate(64 * 4);
    const Result result = gpu.run(kernel_text(body, 2, target, version), "k", launch, {in, out});
    return {result, gpu.report()};
}

void expect_fault(const Verdict& verdict, Result result, const std::vector<std::string>& words) {
    EXPECT_EQ(verdict.result, result) << verdict.words;
    for (const std::string& one : words)
        EXPECT_NE(verdict.words.find(one), std::string::npos) << "'" << one << "' in: " << verdict.words;
}

void expect_none(const Verdict& verdict) { EXPECT_EQ(verdict.result, Result::success) << verdict.words; }

/// %x: where this thread's number lies in the input, %y: where its result does.
std::string with_addresses(const std::string& body) {
    return ".reg .b64 %x, %y, %o;\n.reg .b32 %i, %v, %w;\n.reg .pred %q;\n"
           "mad.lo.s32 %i, %block, 32, %tid;\nmul.wide.u32 %o, %i, 4;\nadd.s64 %x, %p0, %o;\nadd.s64 %y, "
           "%p1, %o;\n" +
           body;
}

TEST(EmulatedJudgements, OutOfBounds) {
    expect_none(judge(with_addresses("ld.global.u32 %v, [%x];\nst.global.u32 [%y], %v;")));
    expect_fault(judge(with_addresses("ld.global.u32 %v, [%x+132];\nst.global.u32 [%y], %v;")),
                 Result::illegal_address,
                 {"kernel k", "\"ld.global.u32 %v, [%x+132];\"", "block (0, 0, 0), thread (31, 0, 0)",
                  "reads 4 bytes at", "0 bytes behind allocation 1 (256 bytes"});
    expect_fault(judge(with_addresses("mov.u64 %x, 64;\nld.global.u32 %v, [%x];")), Result::illegal_address,
                 {"at 0x40, in no allocation"});
    expect_fault(judge(with_addresses("mov.u32 %v, 1;\nst.global.u32 [%x+-4], %v;")), Result::illegal_address,
                 {"writes 4 bytes", "in no allocation", "thread (0, 0, 0)"});
}

/// At an address in the space of parameters, as of a table.
TEST(EmulatedJudgements, OutOfTheParameters) {
    const auto at = [](const std::string& offset) {
        return with_addresses("mov.b64 %o, k_0;\nadd.s64 %o, %o, " + offset +
                              ";\nld.param.u64 %x, [%o];\nmov.u32 %v, 1;\nst.global.u32 [%y], %v;");
    };
    expect_none(judge(at("0")));
    expect_none(judge(at("8")));
    expect_fault(judge(at("16")), Result::illegal_address,
                 {"reads 8 bytes at 0x10 of the kernel's parameters, of which there are 16"});
    expect_fault(judge(at("-8")), Result::illegal_address, {"of the kernel's parameters"});
    expect_fault(judge(at("4")), Result::misaligned_address, {"of the parameters, which is not aligned"});
    expect_fault(judge(with_addresses("mov.b64 %o, k_0;\nst.param.u64 [%o], %x;")), Result::invalid_ptx,
                 {"a kernel's parameters are not written"});
}

TEST(EmulatedJudgements, Misaligned) {
    const std::string load = ".reg .b32 %a, %b, %c, %d;\nld.global.v4.u32 {%a, %b, %c, %d}, ";
    expect_none(judge(with_addresses(load + "[%p0+16];")));
    expect_fault(judge(with_addresses(load + "[%p0+8];")), Result::misaligned_address,
                 {"reads 16 bytes", "not aligned to them"});
    expect_fault(judge(with_addresses("ld.global.u32 %v, [%p0+2];")), Result::misaligned_address,
                 {"reads 4 bytes"});
}

TEST(EmulatedJudgements, NeverWritten) {
    expect_fault(judge(with_addresses("ld.global.u32 %v, [%y];")), Result::illegal_address,
                 {"which nobody wrote, at byte 0 of allocation 2"});
    const std::string shared = ".shared .align 4 .b8 s[128];\n";
    expect_fault(judge(shared + with_addresses("ld.shared.u32 %v, [s];")), Result::illegal_address,
                 {"of shared memory, which nobody wrote"});
    expect_fault(judge(".local .align 4 .b8 l[16];\n" + with_addresses("ld.local.u32 %v, [l+4];")),
                 Result::illegal_address, {"of local memory, which nobody wrote"});
}

TEST(EmulatedJudgements, UseAfterFree) {
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1});
    const DevicePtr in = gpu.upload(std::vector<std::uint32_t>(64, 1));
    cuda::Function function = nullptr;
    ASSERT_EQ(gpu.load(kernel_text(".reg .b32 %v;\nld.global.u32 %v, [%p0];", 1), "k", function),
              Result::success);
    EXPECT_EQ(gpu.launch(function, {}, {in}), Result::success);
    EXPECT_EQ(gpu.driver().mem_free(in), Result::success);
    EXPECT_EQ(gpu.launch(function, {}, {in}), Result::illegal_address);
    EXPECT_NE(gpu.report().find("allocation 1 (256 bytes"), std::string::npos) << gpu.report();
    EXPECT_NE(gpu.report().find("which was freed"), std::string::npos) << gpu.report();
    // As with the driver nothing works after a fault.
    DevicePtr more = 0;
    EXPECT_EQ(gpu.driver().mem_alloc(&more, 16), Result::illegal_address);
}

/// Each thread writes its own number to shared memory and reads that of a thread of the other warp.
std::string exchange(const std::string& between) {
    return ".shared .align 4 .b8 s[256];\n" +
           with_addresses(
               ".reg .b32 %at, %next;\nshl.b32 %at, %tid, 2;\nmov.u32 %w, s;\nadd.u32 %at, %at, %w;\n"
               "st.shared.u32 [%at], 0;\nbar.sync 0;\nst.shared.u32 [%at], %tid;\n" +
               between + "xor.b32 %next, %at, 128;\nld.shared.u32 %v, [%next];");
}

TEST(EmulatedJudgements, RaceWithinABlock) {
    expect_none(judge(exchange("bar.sync 0;\n"), {.threads = 64}));
    const std::vector<std::string> race{"of shared memory", "a race with thread",
                                        "no barrier is between them"};
    expect_fault(judge(exchange(""), {.threads = 64}), Result::launch_failed, race);
    // Read after the barrier by the one warp and written again by the other.
    expect_fault(judge(exchange("bar.sync 0;\n") + "\nst.shared.u32 [%at], %v;", {.threads = 64}),
                 Result::launch_failed, race);
    const std::string to_one = "st.global.u32 [%p1], %tid;";
    expect_fault(judge(with_addresses(to_one)), Result::launch_failed, {"a race with thread 0 of the block"});
    expect_none(judge(with_addresses("setp.eq.u32 %q, %tid, 0;\n@%q " + to_one)));
    expect_none(
        judge(with_addresses("mov.u32 %v, 0;\nst.global.u32 [%y], %v;\nred.global.add.u32 [%y], %tid;")));
}

TEST(EmulatedJudgements, LanesOfAWarpAreOrderedByItsBarrier) {
    const std::string shared = ".shared .align 4 .b8 s[256];\n";
    const auto swap = [&](const std::string& between) {
        return shared +
               with_addresses(".reg .b32 %at, %next;\nshl.b32 %at, %tid, 2;\nst.shared.u32 [%at], %tid;\n" +
                              between + "xor.b32 %next, %at, 4;\nld.shared.u32 %v, [%next];");
    };
    expect_none(judge(swap("bar.warp.sync -1;\n")));
    expect_fault(judge(swap("")), Result::launch_failed, {"a race with thread"});
}

TEST(EmulatedJudgements, RaceBetweenBlocks) {
    const std::string write = "setp.eq.u32 %q, %tid, 0;\n@%q st.global.u32 [%p1], %block;";
    expect_none(judge(with_addresses(write), {.blocks = 1}));
    expect_fault(judge(with_addresses(write), {.blocks = 2}), Result::launch_failed,
                 {"block (1, 0, 0)", "a race with block 0, which writes it"});
    const std::string read_then =
        "ld.global.u32 %v, [%x];\nsetp.eq.u32 %q, %block, 1;\n@%q st.global.u32 [%x+-128], %v;";
    expect_fault(judge(with_addresses(read_then), {.blocks = 2}), Result::launch_failed,
                 {"a race with block 0, which reads it"});
    // Numbers of 16 bits that share four bytes, each written over by the block that read it.
    const std::string own_half =
        ".reg .b64 %h;\n.reg .b16 %s;\nmul.wide.u32 %h, %block, 2;\nadd.u64 %h, %p0, %h;\nsetp.eq.u32 %q, "
        "%tid, "
        "0;\n@%q ld.global.u16 %s, [%h];\n@%q st.global.u16 ";
    expect_none(judge(with_addresses(own_half + "[%h], %s;"), {.blocks = 2}));
    expect_fault(judge(with_addresses(own_half + "[%p0], %s;"), {.blocks = 2}), Result::launch_failed,
                 {"a race with block 0"});
    EXPECT_EQ(
        GpuUnderTest({.architecture = "sm_80", .races = false, .threads = 1})
            .run(kernel_text(".reg .pred %q;\nsetp.eq.u32 %q, %tid, 0;\n@%q st.global.u32 [%p0], %block;", 1),
                 "k", {.blocks = 1}, {0}),
        Result::illegal_address);
}

TEST(EmulatedJudgements, ReadOnlyMemoryIsNotWritten) {
    expect_fault(judge(with_addresses("ld.global.nc.u32 %v, [%x];\nst.global.u32 [%x], %v;")),
                 Result::launch_failed, {"read as what nobody writes (.nc)"});
}

TEST(EmulatedJudgements, BarrierThatNotAllReach) {
    const std::string half = "setp.lt.u32 %q, %tid, 16;\n";
    expect_fault(judge(with_addresses(half + "@%q bar.sync 0;")), Result::launch_failed,
                 {"lanes 0x0000ffff wait for lanes 0xffff0000", "have exited"});
    expect_fault(judge(with_addresses(half + "@%q bra $L1;\nbar.sync 0;\nbra $L2;\n$L1:\nbar.sync 0;\n$L2:")),
                 Result::launch_failed, {"which do not come here", "wait at PTX line"});
    const std::string first_warp = "setp.lt.u32 %q, %tid, 32;\n";
    expect_fault(judge(with_addresses(first_warp + "@%q bar.sync 0;"), {.threads = 64}),
                 Result::launch_failed,
                 {"waits at barrier 0 for 64 threads of which 32 came; warp 1 has exited"});
    expect_fault(judge(with_addresses(first_warp + "@%q bar.sync 1;\n@!%q bar.sync 2;"), {.threads = 64}),
                 Result::launch_failed, {"waits at barrier 1", "warp 1 waits at barrier 2"});
    expect_none(
        judge(with_addresses(first_warp + "@%q bar.sync 1, 32;\n@!%q bar.sync 2, 32;"), {.threads = 64}));
    // Parted lanes that meet again reach it together.
    expect_none(judge(with_addresses(half + "@%q bra $L1;\nmov.u32 %v, 1;\n$L1:\nbar.sync 0;")));
}

TEST(EmulatedJudgements, ShufflesOfLanesThatTakeNoPart) {
    const auto shuffle = [](const char* mask) {
        return with_addresses(
            "setp.lt.u32 %q, %tid, 16;\nmov.u32 %v, 7;\n@%q shfl.sync.bfly.b32 %w, %v, 8, 31, " +
            std::string(mask) + ";");
    };
    expect_none(judge(shuffle("0xffff")));
    expect_fault(judge(shuffle("-1")), Result::launch_failed,
                 {"wait for lanes 0xffff0000, which do not come here"});
    expect_fault(judge(shuffle("0xff")), Result::launch_failed, {"lane 8 is not in its own mask 0x000000ff"});
    expect_fault(
        judge(with_addresses(
            "setp.lt.u32 %q, %tid, 16;\nmov.u32 %v, 7;\n@%q shfl.sync.bfly.b32 %w, %v, 16, 31, 0xffff;")),
        Result::launch_failed, {"reads the register of lane 16, which does not take part"});
}

TEST(EmulatedJudgements, CopiesThatAreUnderWay) {
    const auto copy = [](const std::string& between) {
        return ".shared .align 16 .b8 s[512];\n" +
               with_addresses(
                   ".reg .b32 %at;\nshl.b32 %at, %tid, 2;\n"
                   "cp.async.ca.shared.global [%at], [%x], 4;\ncp.async.commit_group;\n" +
                   between + "ld.shared.u32 %v, [%at];\nst.global.u32 [%y], %v;");
    };
    expect_none(judge(copy("cp.async.wait_group 0;\n")));
    expect_none(judge(copy("cp.async.wait_all;\n")));
    expect_fault(judge(copy("")), Result::illegal_address, {"which a cp.async has yet to write"});
    expect_fault(judge(copy("cp.async.wait_group 1;\n")), Result::illegal_address,
                 {"which a cp.async has yet to write"});
    // The thread itself sees its copy; its neighbours need a barrier.
    expect_fault(judge(copy("cp.async.wait_group 0;\nxor.b32 %at, %at, 4;\n")), Result::launch_failed,
                 {"a race with thread 1"});
}

TEST(EmulatedJudgements, InstructionsOutsideTheArchitecture) {
    const std::string barrier = "barrier.cluster.arrive;";
    expect_fault(judge(barrier), Result::invalid_ptx, {"the instruction needs sm_90, and .target is sm_80"});
    expect_fault(judge(with_addresses(".reg .b16 %h;\nmov.b16 %h, 0;\nadd.bf16 %h, %h, %h;")),
                 Result::invalid_ptx, {"PTX line", "the instruction needs sm_90"});
    expect_fault(judge("ret;", {}, "sm_90", "7.8"), Result::no_binary_for_gpu,
                 {"code for sm_90 does not run on sm_80"});
    expect_fault(judge("ret;", {}, "sm_90a", "8.0", "sm_100"), Result::no_binary_for_gpu,
                 {"runs on sm_90a alone"});
    expect_none(judge("ret;", {}, "sm_80", "7.0", "sm_100"));
    expect_fault(judge("ret;", {}, "sm_90a", "7.8", "sm_90a"), Result::invalid_ptx,
                 {"needs PTX 8.0, and .version is 7.8"});
    expect_fault(judge("ret;", {}, "sm_80", "9.9"), Result::unsupported_ptx_version,
                 {"newer than this driver"});
    expect_fault(judge("wgmma.fence.sync.aligned;", {}, "sm_90", "8.0", "sm_90"), Result::invalid_ptx,
                 {"needs sm_90a"});
}

TEST(EmulatedJudgements, TextThatIsNoPtx) {
    expect_fault(judge("ld.param.u64 %p0, [k_0+8];"), Result::invalid_ptx,
                 {"8 bytes at 8 of the parameter k_0, which has 8"});
    expect_fault(judge("ld.param.u32 %tid, [k_0+2];"), Result::invalid_ptx, {"are not aligned"});
    expect_fault(judge("add.s32 %tid, %tid, %p0;"), Result::invalid_ptx,
                 {"%p0 has 8 bytes, and the instruction reads 4"});
    expect_fault(judge("frobnicate.s32 %tid, %tid;"), Result::invalid_ptx,
                 {"'frobnicate.s32' is not emulated"});
    expect_fault(judge("mov.u32 %tid %lane;"), Result::invalid_ptx, {"';' or ',' was expected"});
    expect_fault(judge("bra $nowhere;"), Result::invalid_ptx, {"there is no label $nowhere"});
    expect_fault(judge(".reg .f32 %z;\nfma.f32 %z, %z, %z, %z;"), Result::invalid_ptx,
                 {"the rounding is missing"});
    expect_fault(judge("mov.u32 %tid, %clock;"), Result::invalid_ptx,
                 {"'%clock' is no register that is emulated"});
}

TEST(EmulatedJudgements, AKernelWithoutAnEndIsGivenUp) {
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1, .max_instructions = 100000});
    EXPECT_EQ(gpu.run(kernel_text("$loop:\nbra $loop;", 0), "k", {}, {}), Result::launch_timeout);
    EXPECT_NE(gpu.report().find("does not come to an end"), std::string::npos) << gpu.report();
}

/// Words left out, doubled and changed for others of the text: each result is a refusal or a module, nothing
/// else.
TEST(EmulatedJudgements, DamagedTextIsRefusedOrTaken) {
    const std::string whole =
        ".func (.param .b32 r) f(.param .b32 a)\n{\n.reg .b32 %x;\nld.param.b32 %x, [a];\nst.param.b32 [r], "
        "%x;\nret;\n}\n" +
        kernel_text(
            ".reg .b32 %a<4>, %b<2>, %r;\n.reg .f32 %c<4>;\n.reg .pred %q;\n.reg .b16 %h;\n.shared .align 16 "
            ".b8 s[64];\n"
            "ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%p0+16];\nsetp.lt.and.f32 %q|_, %c0, %c1, !%q;\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, "
            "{%b0, %b1}, "
            "{%c0, %c1, %c2, %c3};\nldmatrix.sync.aligned.m8n8.x2.shared.b16 {%a0, %a1}, [s+16];\n"
            "shfl.sync.bfly.b32 %a0|%q, %a1, 1, 31, -1;\ncvt.rn.bf16x2.f32 %a0, %c0, %c1;\n{ .param .b32 "
            "p;\n.param .b32 o;\n"
            "st.param.b32 [p], %a0;\ncall.uni (o), f, (p);\nld.param.b32 %r, [o]; }\nlop3.b32 %a0, %a1, %a2, "
            "%a3, 0xe8;\n"
            "atom.global.cas.b32 %r, [%p0], %a0, %a1;\ncp.async.ca.shared.global [s], [%p0], 8, "
            "%a0;\ncp.async.wait_group 0;\n"
            "vote.sync.ballot.b32 %r, %q, -1;\nbar.red.popc.u32 %r, 0, %q;\nprmt.b32 %r, %a0, %a1, 0x5410;\n"
            "mov.b32 {%h, _}, %a0;\n$list: .branchtargets $x, $y;\nbrx.idx %r, $list;\n$x:\n$y:\n"
            "slct.u32.f32 %r, %a0, %a1, %c0;\ntestp.finite.f32 %q, %c0;\nset.lt.u32.f32 %r, %c0, %c1;",
            1);
    std::vector<std::string> words;
    for (std::size_t at = 0; at < whole.size();) {
        std::size_t end = at + 1;
        const auto plain = [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%';
        };
        while (plain(whole[at]) && end < whole.size() && plain(whole[end])) ++end;
        words.push_back(whole.substr(at, end - at));
        at = end;
    }
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1});
    const auto load = [&](const std::vector<std::string>& changed) {
        std::string text;
        for (const std::string& word : changed) text += word;
        cuda::Module module = nullptr;
        const Result result = gpu.driver().module_load_data_ex(&module, text.c_str(), 0, nullptr, nullptr);
        if (result == Result::success) gpu.driver().module_unload(module);
        return result;
    };
    ASSERT_EQ(load(words), Result::success) << gpu.report();
    std::uint64_t random = 5;
    const auto next = [&](std::size_t below) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::size_t>(random >> 33) % below;
    };
    int refused = 0;
    for (int i = 0; i < 3000; ++i) {
        std::vector<std::string> changed = words;
        const std::size_t at = next(words.size());
        switch (next(3)) {
            case 0:
                changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
                break;
            case 1:
                changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at), words[next(words.size())]);
                break;
            default:
                changed[at] = words[next(words.size())];
        }
        refused += load(changed) != Result::success;
    }
    EXPECT_GT(refused, 1500);
    EXPECT_LT(refused, 3000);
}

TEST(EmulatedJudgements, LaunchesThatTheDriverRefuses) {
    expect_fault(judge("ret;", {.threads = 2000}), Result::invalid_value, {});
    expect_fault(judge("ret;", {.shared = 50000}), Result::invalid_value, {});
    expect_none(judge("ret;", {.shared = 40000}));
    expect_fault(judge("trap;"), Result::launch_failed, {"trap"});
}

}  // namespace
}  // namespace mantissa::testing
