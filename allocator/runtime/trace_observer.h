// TraceObserver: notifies a recorder of a device's blocks, and of what the device holds whenever that has grown.
//
// Thread-safe. Bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "allocator/record/recorder.h"
#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/ledger.h"
#include "allocator/runtime/running_pass.h"

namespace stalloc {

class TraceObserver final : public BlockObserver {
 public:
  struct Parts {
    DeviceIndex device = 0;
    const Ledger* ledger = nullptr;                   // outlives this
    PassHere pass_here = nullptr;                     // null: not known
    std::function<Bytes()> own_bytes = nullptr;       // what arenas and heap hold
    std::function<Bytes()> upstream_bytes = nullptr;  // what upstream holds; costs a lock
  };
  // `recorder`: null: nothing is recorded.
  TraceObserver(Parts parts, Recorder* recorder)
      : BlockObserver(recorder != nullptr), parts_(std::move(parts)), recorder_(recorder) {}

  // Events go there from now on. It and the one before outlive this, since other threads may be calling either.
  void RecordTo(Recorder* recorder) noexcept {
    recorder_.store(recorder, std::memory_order_release);
    Listen(recorder != nullptr);
  }
  [[nodiscard]] Recorder* recorder() const noexcept { return recorder_.load(std::memory_order_acquire); }

  // The device's growth comes before the block that it grew for.
  void Began(const BlockBegin& block) override;
  void Ends(const BlockEnd& block) noexcept override;
  void Used(const void* pointer, StreamHandle stream) noexcept override;
  void Held(Bytes upstream) noexcept override;

 private:
  [[nodiscard]] std::uint32_t FlagsOf(const BlockBegin& block) const noexcept;
  [[nodiscard]] Bytes HeldWith(Bytes upstream) const;
  void Record(Recorder& recorder, Bytes upstream);
  void RecordGrowth(Recorder& recorder, bool of_upstream);

  const Parts parts_;
  std::atomic<Recorder*> recorder_;
  std::atomic<Bytes> held_{0};      // the trace's last
  std::atomic<Bytes> upstream_{0};  // what upstream had of it
};

}  // namespace stalloc
