#include "mantissa/device/cuda/gpu_ranks.h"

#include <algorithm>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0::on_cuda {

GpuRanks::GpuRanks(const cuda::Driver& driver, const cuda::Nccl& nccl, Ranks& ranks)
    : driver_(driver), nccl_(nccl), ranks_(ranks) {
    cuda::NcclUniqueId id;
    if (ranks.rank() == 0) require(nccl_, nccl_.get_unique_id(&id), nullptr, "NCCL's name for the ranks");
    const std::string of_the_first = ranks.gather({id.internal, sizeof id.internal})[0];
    check(of_the_first.size() == sizeof id.internal, "ranks are of one program");
    std::ranges::copy(of_the_first, id.internal);
    require(nccl_, nccl_.comm_init_rank(&comm_, ranks.size(), id, ranks.rank()), nullptr,
            "connecting the GPUs of the ranks");
    require(driver_, driver_.stream_create(&stream_, cuda::stream_non_blocking), "a stream");
}

GpuRanks::~GpuRanks() {
    if (comm_) nccl_.comm_destroy(comm_);
    for (const auto& [sum, events] : events_) {
        driver_.event_destroy(events.begin);
        driver_.event_destroy(events.end);
    }
    for (const std::uint64_t room : rooms_) driver_.mem_free(room);
    driver_.stream_destroy(stream_);
}

int GpuRanks::rank() const { return ranks_.rank(); }
int GpuRanks::ranks() const { return ranks_.size(); }
bool GpuRanks::is_alone() const { return ranks_.is_alone(); }

void GpuRanks::exchange(const Places& sends, const Places& receives) {
    require(nccl_, nccl_.group_start(), comm_, "an exchange of ranks");
    pass(sends, true);
    pass(receives, false);
    require(nccl_, nccl_.group_end(), comm_, "an exchange of ranks");
}

void GpuRanks::pass(const Places& places, bool send) {
    for (std::size_t rank = 0; rank < places.size(); ++rank)
        for (const Place& place : places[rank]) {
            if (place.bytes == 0) continue;
            auto* const address = reinterpret_cast<void*>(place.address);
            const auto bytes = static_cast<std::size_t>(place.bytes);
            const auto peer = static_cast<int>(rank);
            require(nccl_,
                    send ? nccl_.send(address, bytes, cuda::NcclType::uint8, peer, comm_, stream_)
                         : nccl_.recv(address, bytes, cuda::NcclType::uint8, peer, comm_, stream_),
                    comm_, "an exchange of ranks");
        }
}

void GpuRanks::abort() noexcept {
    if (comm_) nccl_.comm_abort(comm_);
    comm_ = nullptr;
}

GpuRanks::Events& GpuRanks::events_of(int sum) {
    Events& events = events_[sum];
    for (cuda::Event* event : {&events.begin, &events.end})
        if (!*event) require(driver_, driver_.event_create(event, cuda::event_disable_timing), "an event");
    return events;
}

void GpuRanks::begin_behind(cuda::Stream work, int sum) {
    const Events& events = events_of(sum);
    require(driver_, driver_.event_record(events.begin, work), "an event");
    require(driver_, driver_.stream_wait_event(stream_, events.begin, 0), "waiting for an event");
}

void GpuRanks::end(int sum) {
    require(driver_, driver_.event_record(events_of(sum).end, stream_), "an event");
}

void GpuRanks::wait(cuda::Stream work, int sum) {
    require(driver_, driver_.stream_wait_event(work, events_of(sum).end, 0), "waiting for an event");
}

void GpuRanks::reserve(std::int64_t bytes) { reserved_ = std::max(reserved_, bytes); }

void GpuRanks::allocate() {
    if (allocated_ >= reserved_) return;
    std::uint64_t room = 0;
    require(driver_, driver_.mem_alloc(&room, static_cast<std::size_t>(reserved_)),
            "memory for what ranks exchange");
    rooms_.push_back(room);
    allocated_ = reserved_;
}

}  // namespace mantissa::on_cuda
