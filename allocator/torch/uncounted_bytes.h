// UncountedBytes: device memory of this process that no allocator counts, by cause: what a device has less after a call
// than before it, what allocators reserved meanwhile apart. Bytes.
//
// Another process or thread that takes memory during such a call is counted, too; one that gives some back makes the
// figure smaller, never negative. Not measured while a stream may be captured. Thread-safe; a call within another one
// counts once.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAMacros.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "proto/model/units.h"

namespace stalloc {

class UncountedBytes {
 public:
  enum class Cause : std::uint8_t { kCommunicators, kGraphs, kCount };
  struct Sample {
    c10::DeviceIndex device = 0;
    std::int64_t bytes = 0;  // taken of the device, by any process, that no allocator of this process counts
  };
  // For the calling thread's current device; nullopt: cannot be known now. Does not throw.
  using Measure = std::function<std::optional<Sample>()>;

  explicit UncountedBytes(Measure measure) : measure_(std::move(measure)) {}

  // Returns what `call` returns, which does not throw.
  template <typename Call>
  auto During(Cause cause, Call&& call) noexcept {
    const Span span(*this, cause);
    return call();
  }

  [[nodiscard]] Bytes Of(c10::DeviceIndex device, Cause cause) const noexcept;

 private:
  class Span {
   public:
    Span(UncountedBytes& owner, Cause cause) noexcept;
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    UncountedBytes& owner_;
    const Cause cause_;
    std::optional<Sample> before_;
  };

  const Measure measure_;
  std::array<std::array<std::atomic<Bytes>, static_cast<std::size_t>(Cause::kCount)>, C10_COMPILE_TIME_MAX_GPUS>
      bytes_{};
};

}  // namespace stalloc
