// SimulatedDevice: a device without work, which knows for every byte and every stream whether the stream's next work is
// ordered behind the last use of that byte by every other stream. Vector clocks; a StreamFence for the engine.
//
// Source of the method: Mattern, "Virtual Time and Global States of Distributed Systems", 1989; it is how race
// detectors (ThreadSanitizer, PyTorch's CUDA sanitizer) decide. Thread-safe. Offsets and lengths in granules of 512
// bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/driver/stream_fence.h"

namespace stalloc {

class SimulatedDevice : public StreamFence {
 public:
  // What is wrong with the device, or just its way.
  struct Habits {
    double refuses = 0;             // share of Record and Wait calls that fail ("a capture runs")
    double finishes = 0.3;          // share of Done calls that find the work done
    bool waits_do_nothing = false;  // Wait says yes, and nothing waits
    bool events_are_early = false;  // events are behind nothing
    bool done_lies = false;         // Done says yes of work that runs
  };

  SimulatedDevice(std::uint32_t granules, std::uint64_t seed, Habits habits);

  // The first work of a new owner of [lo, hi): counts granules that another stream may still be using.
  void Begin(std::uint32_t lo, std::uint32_t hi, StreamHandle stream);
  // More work on bytes that the program owns; `behind`: the program made `stream` wait for that stream first.
  void Use(std::uint32_t lo, std::uint32_t hi, StreamHandle stream);
  void UseBehind(std::uint32_t lo, std::uint32_t hi, StreamHandle stream, StreamHandle behind);
  // The program makes `stream` wait for all that `behind` was given so far.
  void OrderBehind(StreamHandle stream, StreamHandle behind);

  Event Record(StreamHandle stream) noexcept override;
  Event RecordAll() noexcept override;
  bool Wait(StreamHandle stream, Event event) noexcept override;
  bool Done(Event event) noexcept override;
  void Recycle(Event event) noexcept override;

  // The host knows that all uses of [lo, hi) are done.
  [[nodiscard]] bool IsDone(std::uint32_t lo, std::uint32_t hi) const;

  // From now on nothing is refused, and everything is done when it is asked for.
  void CalmDown();

  // Granules that were handed on too early, and uses of events that were recycled.
  [[nodiscard]] std::uint64_t violations() const;
  [[nodiscard]] std::uint64_t outstanding_events() const;

 private:
  static constexpr std::size_t kMostStreams = 64;
  using Clock = std::array<std::uint64_t, kMostStreams>;

  [[nodiscard]] std::size_t KeyOf(StreamHandle stream);
  void Touch(std::uint32_t lo, std::uint32_t hi, std::size_t key);
  [[nodiscard]] bool Happens(double share) { return std::uniform_real_distribution<double>()(random_) < share; }

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  Habits habits_;
  // The per-thread default stream is another one in each thread.
  std::map<std::pair<StreamHandle, std::thread::id>, std::size_t> keys_;
  std::vector<Clock> streams_;   // behind which work of which stream its next work runs
  Clock completed_{};            // what is known to the host to be done
  std::vector<Clock> last_use_;  // of each granule, by each stream
  std::map<Event, Clock> events_;
  Event last_event_ = 0;
  std::uint64_t violations_ = 0;
};

}  // namespace stalloc
