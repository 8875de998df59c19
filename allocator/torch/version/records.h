// torch's records of blocks and events, made in one form for all supported versions: a stream is a cudaStream_t up to
// 2.10 and a void* from then on, and an event has the program's own words from 2.10 on.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace stalloc::version {

struct Event {
  c10::cuda::CUDACachingAllocator::TraceEntry::Action action;
  c10::DeviceIndex device;
  std::size_t address;
  std::size_t bytes;
  void* stream;
  c10::approx_time_t time;
  std::shared_ptr<c10::GatheredContext> context;
  std::string user_metadata;
};

template <typename Entry = c10::cuda::CUDACachingAllocator::TraceEntry>
Entry MakeEntry(Event event) {
  using Stream = decltype(Entry::stream_);
  const auto stream = static_cast<Stream>(event.stream);
  const c10::MempoolId_t pool{0, 0};
  if constexpr (std::is_constructible_v<Entry, typename Entry::Action, c10::DeviceIndex, std::size_t, std::size_t,
                                        Stream, c10::MempoolId_t, c10::approx_time_t,
                                        std::shared_ptr<c10::GatheredContext>, std::string, std::string>) {
    return Entry(event.action, event.device, event.address, event.bytes, stream, pool, event.time,
                 std::move(event.context), "", std::move(event.user_metadata));
  } else {
    return Entry(event.action, event.device, event.address, event.bytes, stream, pool, event.time,
                 std::move(event.context));
  }
}

// Empty where events have no words.
template <typename Entry>
std::string UserMetadataOfEntry(const Entry& entry) {
  if constexpr (requires { entry.user_metadata_; }) {
    return entry.user_metadata_;
  } else {
    return {};
  }
}

// Processes that register segments with each other (NCCL) sort by this number, so it has to be theirs in the same
// order. Up to 2.10 segments have none. The native allocator counts from 0; ours come after all of its.
template <typename Segment>
void SetRegistrationOrder(Segment& segment, std::size_t order) {
  constexpr std::size_t kBehindNative = 1u << 30;
  if constexpr (requires { segment.registration_counter; }) {
    segment.registration_counter =
        static_cast<decltype(segment.registration_counter)>(kBehindNative + order % kBehindNative);
  }
}

template <typename Segment>
void SetStream(Segment& segment, void* stream) {
  segment.stream = static_cast<decltype(segment.stream)>(stream);
}

}  // namespace stalloc::version
