// WatchMemory: fills bytes of a device with a pattern, and reports later whether they still have it. For STALLOC_WATCH.
//
// Both happen in the order of a stream's work, and the host waits for neither. A question has a ticket below
// kMostTickets, which may be used again once it was answered. Not thread-safe: the watch calls under its lock.
// noexcept.
#pragma once

#include <cstdint>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class WatchMemory {
 public:
  // NaN in every type of floating point, -1 in every signed integer.
  static constexpr unsigned char kPattern = 0xff;
  static constexpr std::uint32_t kMostTickets = 8192;

  struct Answer {
    bool changed = false;
    Bytes offset = 0;  // of the first byte that has something else
    unsigned char found = 0;
  };

  virtual ~WatchMemory() = default;
  // Work of different streams runs in any order.
  [[nodiscard]] virtual bool HasStreams() const noexcept = 0;
  // False: not now (the stream is captured, or is another one in each thread); nothing is sent to the device then.
  virtual bool Fill(Address begin, Bytes bytes, StreamHandle stream) noexcept = 0;
  virtual bool Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle stream) noexcept = 0;
  // False: not known yet. REQUIRES: Query gave true.
  virtual bool Answered(std::uint32_t ticket, Answer* answer) noexcept = 0;
};

}  // namespace stalloc
