// HostPool: page-locked memory of the host for the bytes of sleeping blocks, kept from one sleep to the next.
//
// To lock pages takes many times longer than to copy into them, so memory is taken once and used again. It is in
// segments: what is needed more is several, which some threads take at the same time, so that one finds pages while
// the driver locks another's. What is taken may come in several pieces. Not thread-safe: the device's sleep owns it.
// Bytes, multiples of kBlockAlignment.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "allocator/driver/device_copies.h"
#include "proto/model/result.h"
#include "proto/model/units.h"

namespace stalloc {

class HostPool {
 public:
  struct Piece {
    std::byte* at = nullptr;
    Bytes bytes = 0;
  };

  static constexpr Bytes kSegment = Bytes{1} << 30;  // at most

  // `copies` outlives the pool. `segment`: of at most so many bytes, a multiple of 2 MiB.
  explicit HostPool(DeviceCopies& copies, Bytes segment = kSegment) noexcept : copies_(copies), segment_(segment) {}
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Pieces of so many bytes together; the pool grows where it has too little. The error names what was lacking, and
  // then nothing has changed.
  [[nodiscard]] Result<std::vector<Piece>> Take(Bytes bytes);
  // A part of what was taken, or all of it.
  void Give(const Piece& piece);
  // From now on so many bytes can be taken without growing.
  [[nodiscard]] Status Reserve(Bytes bytes);
  // Segments that nobody uses go back to the system; bytes. REQUIRES: no copy is under way.
  Bytes Release() noexcept;

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  [[nodiscard]] Bytes free_bytes() const noexcept { return free_bytes_; }

 private:
  using FreeParts = std::map<std::byte*, Bytes>;  // disjoint; those that touch are one
  struct Segment {
    void* memory = nullptr;
    Bytes bytes = 0;
    FreeParts free;
  };

  // On failure those that could be had go back.
  [[nodiscard]] DriverStatus TakeSegments(Bytes bytes, std::vector<Segment>* taken) const;

  DeviceCopies& copies_;
  const Bytes segment_;
  std::map<std::byte*, Segment> segments_;  // by address; a copy never runs across two
  Bytes bytes_ = 0;
  Bytes free_bytes_ = 0;
};

}  // namespace stalloc
