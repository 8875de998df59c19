// The host's memory under a watch: at once, since what a program has done there is done.
#pragma once

#include "allocator/base/mapped_array.h"
#include "allocator/driver/watch_memory.h"

namespace stalloc {

class HostWatchMemory final : public WatchMemory {
 public:
  [[nodiscard]] bool HasStreams() const noexcept override { return false; }
  bool Fill(Address begin, Bytes bytes, StreamHandle stream) noexcept override;
  bool Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle stream) noexcept override;
  bool Answered(std::uint32_t ticket, Answer* answer) noexcept override;

 private:
  MappedArray<Answer> answers_{kMostTickets};
};

}  // namespace stalloc
