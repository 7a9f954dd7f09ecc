#include "mantissa/runtime/input_staging.h"

#include <algorithm>
#include <exception>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

InputStaging::InputStaging(Device& device, std::vector<std::span<std::byte>> inputs,
                           std::span<std::byte> memory)
    : device_(device), host_(device.allocate_on_host(memory.size(), "inputs")), given_(inputs.size()) {
    const auto step = [&](std::span<std::byte> input) {
        return static_cast<std::size_t>(
            align_up(static_cast<std::int64_t>(input.size()), device.target().alignment));
    };
    std::size_t at = 0;
    for (Slot& slot : slots_) {
        std::vector<BoundStep> copies;
        for (const std::span<std::byte> input : inputs) {
            slot.on_host.push_back(host_->bytes().subspan(at, input.size()));
            slot.on_device.push_back(memory.subspan(at, input.size()));
            copies.emplace_back(BoundCopy{.from = slot.on_device.back(), .to = input.data()});
            at += step(input);
        }
        slot.into_place = device.bind(copies);
    }
}

InputStaging::~InputStaging() {
    try {
        device_.wait(*device_.record(Queue::copies));
    } catch (const std::exception&) {  // whoever waits for the work gets the error
    }
}

/// The previous contents of its memory are on their way no more.
void InputStaging::begin(Slot& slot) {
    if (slot.copied) device_.wait(*slot.copied);
    if (slot.emptied) device_.queue_wait(Queue::copies, *slot.emptied);
    begun_ = true;
}

void InputStaging::give(std::size_t input, std::span<const std::byte> value) {
    Slot& slot = slots_[current_];
    if (!begun_) begin(slot);
    // Given twice: the first value may still be read.
    if (given_[input]) device_.wait(*device_.record(Queue::copies));
    check(value.size() == slot.on_host[input].size(), "an input is given whole");
    std::ranges::copy(value, slot.on_host[input].data());
    device_.queue_to_device(Queue::copies, slot.on_device[input].data(), slot.on_host[input]);
    given_[input] = true;
}

void InputStaging::queue() {
    if (!begun_) return;
    Slot& slot = slots_[current_];
    slot.copied = device_.record(Queue::copies);
    device_.queue_wait(Queue::work, *slot.copied);
    for (std::size_t input = 0; input < given_.size(); ++input)
        if (given_[input]) slot.into_place->run_step(input);
    given_.assign(given_.size(), false);
    slot.emptied = device_.record();
    current_ = (current_ + 1) % slots_.size();
    begun_ = false;
}

}  // namespace mantissa
