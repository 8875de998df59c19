// StreamFence: what a device offers to order the work of one stream after that of another, on the device itself.
#pragma once

#include <cstdint>

#include "proto/model/units.h"

namespace stalloc {

// CUDA names the legacy default stream 0 and 1, and with 2 each thread names a default stream of its own: the same
// handle is another stream in another thread, so nothing follows from two such handles being equal.
inline constexpr StreamHandle kLegacyDefaultStream = 0;
inline constexpr StreamHandle kLegacyDefaultStreamToo = 1;
inline constexpr StreamHandle kPerThreadDefaultStream = 2;

// Names a stream of another device than the one that is queried: handles do not show this, least of all those of
// default streams, which are the same on every device. Addresses of the host leave the upper bits free.
inline constexpr int kOtherDeviceShift = 57;
[[nodiscard]] constexpr StreamHandle StreamOfDevice(int device, StreamHandle stream) noexcept {
  return stream | static_cast<StreamHandle>(device + 1) << kOtherDeviceShift;
}
[[nodiscard]] constexpr bool IsOfOtherDevice(StreamHandle stream) noexcept { return stream >> kOtherDeviceShift != 0; }

// Implemented per backend; the CPU has none. All calls noexcept, thread-safe.
class StreamFence {
 public:
  using Event = std::uint64_t;  // 0 is none; no two that are not recycled are equal
  virtual ~StreamFence() = default;
  // An event after all work given to `stream` so far, which may be another device's; 0 when it cannot be recorded now
  // (a capture runs, driver gone).
  // For kPerThreadDefaultStream: after those of all threads.
  virtual Event Record(StreamHandle stream) noexcept = 0;
  // An event after all work that the device was given so far, by whichever thread, on whichever stream; 0 when it
  // cannot be recorded now, or there are none such.
  virtual Event RecordAll() noexcept { return 0; }
  // All work given to `stream` from now on (by this thread, for kPerThreadDefaultStream) runs after the event. The host
  // does not wait. False when that cannot be requested now. An event may be recycled as soon as the call is over.
  virtual bool Wait(StreamHandle stream, Event event) noexcept = 0;
  // True when all work before the event is done.
  virtual bool Done(Event event) noexcept = 0;
  // The same, and the host waits for it. False where it cannot.
  virtual bool Await(Event event) noexcept { return Done(event); }
  virtual void Recycle(Event event) noexcept = 0;
};

}  // namespace stalloc
