// A device that is elsewhere and late finds who takes it for the host: each fault, planted.
#include "mantissa/device/discrete/discrete_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "tests/support/discrete_device.h"

namespace mantissa {
namespace {

/// Three numbers on a device, and a launch that doubles the first into the second.
struct Doubling {
    std::unique_ptr<Device> device = testing::discrete_device(1);
    std::unique_ptr<DeviceMemory> x = device->allocate(8, "x"), y = device->allocate(8, "y"),
                                  scratch = device->allocate(8, "scratch");
    int launches = 0;
    double found_in_output = 0;
    double found_in_workspace = 0;
    bool writes = true;
    Launch launch = [this](const Operands& operands) {
        ++launches;
        found_in_output = *operands.output<double>(0);
        std::memcpy(&found_in_workspace, operands.workspace, sizeof found_in_workspace);
        if (writes) *operands.output<double>(0) = *operands.input<double>(0) * 2;
    };

    void set(DeviceMemory& memory, double value) {
        device->copy_to_device(memory.data(), std::as_bytes(std::span<const double>(&value, 1)));
    }
    double get(const DeviceMemory& memory) {
        double value = 0;
        device->copy_to_host(std::as_writable_bytes(std::span<double>(&value, 1)), memory.data());
        return value;
    }
    static std::span<std::byte> all(const DeviceMemory& memory) { return {memory.data(), memory.size()}; }

    std::unique_ptr<Program> program(std::span<std::byte> from, std::span<std::byte> to) {
        const BoundStep step =
            BoundLaunch{.launch = &launch, .inputs = {from}, .outputs = {to}, .workspace = all(*scratch)};
        return device->bind({&step, 1});
    }
    std::unique_ptr<Program> program() { return program(all(*x), all(*y)); }
};

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const InternalError& error) {
        return error.what();
    }
    return "";
}

double from_poison() {
    const std::uint16_t words[] = {poison, poison, poison, poison};
    double value = 0;
    std::memcpy(&value, words, sizeof value);
    return value;
}

/// Of bits, since a NaN is not equal to itself.
void expect_poison(double value) {
    const double expected = from_poison();
    EXPECT_EQ(std::memcmp(&value, &expected, sizeof value), 0) << value;
}

TEST(DiscreteDevice, RunsNothingBeforeSomebodyWaits) {
    Doubling test;
    test.set(*test.x, 3);
    const auto program = test.program();
    const auto before = test.device->record();
    program->run();
    const auto between = test.device->record();
    program->run_step(0);
    const auto behind = test.device->record();
    EXPECT_EQ(test.launches, 0);
    test.device->wait(*before);
    EXPECT_EQ(test.launches, 0);
    test.device->wait(*between);
    EXPECT_EQ(test.launches, 1) << "what was queued behind an event waits for another";
    test.device->wait(*between);
    EXPECT_EQ(test.launches, 1);
    test.device->wait(*behind);
    EXPECT_EQ(test.launches, 2);
    EXPECT_EQ(test.get(*test.y), 6);
}

TEST(DiscreteDevice, ALaunchReadsWhatIsThereWhenItRuns) {
    Doubling test;
    test.set(*test.x, 3);
    const auto program = test.program();
    program->run();
    EXPECT_EQ(test.get(*test.y), 6) << "a copy to the host waits for all that was queued";
    program->run();
    test.set(*test.x, 5);
    EXPECT_EQ(test.get(*test.y), 6) << "a copy to the device, too: the launch before it read 3";
    program->run();
    EXPECT_EQ(test.get(*test.y), 10);
}

TEST(DiscreteDevice, HasPassedNoEventThatNobodyWaitedFor) {
    Doubling test;
    const auto first = test.device->record(), second = test.device->record();
    test.device->wait(*first);
    EXPECT_NE(error_of([&] {
                  test.device->seconds_between(*first, *second);
              }).find("the device has passed an event whose time is asked for"),
              std::string::npos);
    test.device->wait(*second);
    EXPECT_GE(test.device->seconds_between(*first, *second), 0);
}

TEST(DiscreteDevice, WhatFollowsOnAnErrorIsLeftOut) {
    Doubling test;
    test.set(*test.x, 3);
    const Launch fails = [](const Operands&) { throw UserError("it fails"); };
    const BoundStep step = BoundLaunch{.launch = &fails, .inputs = {}, .outputs = {test.all(*test.y)}};
    const auto failing = test.device->bind({&step, 1}), program = test.program();
    failing->run();
    program->run();
    const auto done = test.device->record();
    EXPECT_THROW(test.device->wait(*done), UserError);
    test.device->wait(*done);
    EXPECT_EQ(test.launches, 0);
    program->run();
    EXPECT_EQ(test.get(*test.y), 6) << "what is queued later runs";
}

/// Numbers on the host that copies may be queued from and to.
struct OnHost {
    std::unique_ptr<HostMemory> memory;
    explicit OnHost(Device& device) : memory(device.allocate_on_host(8, "numbers")) {}
    double& number() { return *reinterpret_cast<double*>(memory->bytes().data()); }
};

TEST(DiscreteDevice, AQueuedCopyIsDoneWhenItsEventIsPassed) {
    Doubling test;
    OnHost from(*test.device), to(*test.device);
    from.number() = 3;
    to.number() = 1;
    test.device->queue_to_device(Queue::work, test.x->data(), from.memory->bytes());
    test.program()->run();
    test.device->queue_to_host(Queue::work, to.memory->bytes(), test.y->data());
    const auto done = test.device->record();
    expect_poison(to.number());
    from.number() = 4;  // too early
    test.device->wait(*done);
    EXPECT_EQ(to.number(), 8);
}

TEST(DiscreteDevice, QueuesRunBesideEachOtherUntilOneWaits) {
    Doubling test;
    OnHost from(*test.device);
    from.number() = 3;
    const auto program = test.program();
    int read_too_early = 0, overwritten = 0;
    for (int i = 0; i < 6; ++i) {  // copies begin early, or late
        test.set(*test.x, 1);
        program->run();  // of 1
        test.device->queue_to_device(Queue::copies, test.x->data(), from.memory->bytes());
        test.device->wait(*test.device->record());
        overwritten += test.get(*test.y) == 6;
        program->run();  // of 3, if only it waited
        test.device->wait(*test.device->record());
        read_too_early += test.get(*test.y) == 2;
        test.device->wait(*test.device->record(Queue::copies));

        test.set(*test.x, 1);
        program->run();
        test.device->queue_wait(Queue::copies, *test.device->record());
        test.device->queue_to_device(Queue::copies, test.x->data(), from.memory->bytes());
        test.device->wait(*test.device->record());
        EXPECT_EQ(test.get(*test.y), 2);
        test.device->queue_wait(Queue::work, *test.device->record(Queue::copies));
        program->run();
        test.device->wait(*test.device->record());
        EXPECT_EQ(test.get(*test.y), 6);
    }
    EXPECT_GT(read_too_early, 0);
    EXPECT_GT(overwritten, 0);
}

TEST(DiscreteDevice, CopiesAreQueuedFromMemoryOfItsOwnOnTheHost) {
    Doubling test;
    double own = 0;
    const auto bytes = std::as_writable_bytes(std::span<double>(&own, 1));
    const char* const reason = "copies are queued from and to memory of allocate_on_host";
    EXPECT_NE(
        error_of([&] { test.device->queue_to_device(Queue::copies, test.x->data(), bytes); }).find(reason),
        std::string::npos);
    EXPECT_NE(error_of([&] { test.device->queue_to_host(Queue::work, bytes, test.x->data()); }).find(reason),
              std::string::npos);
}

TEST(DiscreteDevice, MemoryThatNobodyWroteHoldsPoison) {
    Doubling test;
    EXPECT_TRUE(std::isnan(from_poison()));
    expect_poison(test.get(*test.x));
    EXPECT_EQ(test.get(*test.device->allocate_zeroed(8, "zeros")), 0);
    test.set(*test.x, 3);
    test.set(*test.y, 7);
    test.set(*test.scratch, 7);
    test.writes = false;
    test.program()->run();
    expect_poison(test.get(*test.y));
    expect_poison(test.found_in_output);
    expect_poison(test.found_in_workspace);
}

TEST(DiscreteDevice, AnOutputOverAnOperandKeepsIt) {
    Doubling test;
    test.set(*test.x, 3);
    test.program(test.all(*test.x), test.all(*test.x))->run();
    EXPECT_EQ(test.get(*test.x), 6);
    EXPECT_EQ(test.found_in_output, 3);
}

TEST(DiscreteDevice, CopiesWithinItself) {
    Doubling test;
    test.set(*test.x, 3);
    const BoundStep copy = BoundCopy{.from = test.all(*test.x), .to = test.y->data()};
    const auto program = test.device->bind({&copy, 1});
    program->run();
    EXPECT_EQ(test.get(*test.y), 3);
}

using DiscreteDeviceDeath = ::testing::Test;

TEST(DiscreteDeviceDeath, TheHostTouchesItsMemory) {
    const char* const said = "the host touched memory of the device, which only launches and copies may do";
    const Doubling test;
    const volatile std::byte* const address = test.x->data();
    EXPECT_EXIT(static_cast<void>(*address), ::testing::KilledBySignal(SIGSEGV), said);
    EXPECT_EXIT(std::memset(test.x->data(), 0, 8), ::testing::KilledBySignal(SIGSEGV), said);
    const auto freed = [&] { return test.device->allocate(8, "soon gone")->data(); }();
    EXPECT_EXIT(*freed = std::byte{}, ::testing::KilledBySignal(SIGSEGV), said);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these report it themselves
    EXPECT_EXIT(
        {
            std::fprintf(stderr, "elsewhere\n");
            *reinterpret_cast<volatile int*>(8) = 0;
        },
        ::testing::KilledBySignal(SIGSEGV), "^elsewhere\n$")
        << "what is no memory of the device is none of its business";
#endif
}

TEST(DiscreteDevice, RefusesWhatIsNoMemoryOfIts) {
    Doubling test;
    double own = 0;
    const auto bytes = std::as_writable_bytes(std::span<double>(&own, 1));
    const auto refusal = [&](std::span<std::byte> from, std::span<std::byte> to) {
        const auto program = test.program(from, to);
        return error_of([&] {
            program->run();
            test.device->wait(*test.device->record());
        });
    };
    const auto expect = [](const std::string& text, const char* part) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect(refusal(bytes, test.all(*test.y)), "a launch reads: 8 bytes at ");
    expect(refusal(bytes, test.all(*test.y)), " are no memory of the device");
    expect(refusal(test.all(*test.x), bytes), "a launch writes: 8 bytes at ");
    const std::span<std::byte> freed = test.all(*test.device->allocate(8, "soon gone"));
    expect(refusal(test.all(*test.x), freed), " were freed, or never allocated");
    expect(refusal({test.x->data(), 16}, test.all(*test.y)), " reach beyond the 8 bytes of 'x'");
    expect(refusal({test.x->data() - 8, 16}, test.all(*test.y)), " are no memory of the device");
    EXPECT_EQ(test.launches, 0);
    expect(error_of([&] { test.device->copy_to_host(bytes, bytes.data()); }), "a copy to the host: 8 bytes");
    expect(error_of([&] { test.device->copy_to_device(bytes.data(), bytes); }), "a copy from the host: 8");
}

TEST(DiscreteDevice, FindsMemoryThatIsFreedBeforeItsWorkIsDone) {
    Doubling test;
    const auto program = test.program();
    program->run();
    test.x.reset();
    EXPECT_NE(
        error_of([&] { test.device->wait(*test.device->record()); }).find("were freed, or never allocated"),
        std::string::npos);
}

TEST(DiscreteDevice, SaysWhatItIs) {
    EXPECT_TRUE(testing::discrete_device(1)->target().isa.ends_with(" (discrete, emulated)"));
    ::setenv("MANTISSA_EMULATE_DISCRETE", "yes", 1);
    try {
        discrete_emulation_asked();
        FAIL() << "accepted";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "MANTISSA_EMULATE_DISCRETE is 'yes'; expected 0 or 1");
    }
    ::unsetenv("MANTISSA_EMULATE_DISCRETE");
}

}  // namespace
}  // namespace mantissa
