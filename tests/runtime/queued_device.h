// QueuedDevice: a device whose work runs later. Kernels, events and waits are queued per stream, and a thread of its
// own runs them in an order that a seed chooses: any that the streams' own order and their waits allow.
//
//   host:    Launch(A, x)   Record(A)    Wait(B, event)   Launch(B, y)   Free(x) ...     Unmap
//   stream A:  x ---------- event                                                          |
//   stream B:                              wait ------------ y   <-- still to run: a finding when it does
//
// A kernel looks at the first word of each of its block's granules: the bytes must be usable when it runs, and hold
// what the block's last kernel wrote; then it writes anew. So it finds whatever is unmapped too early, given to two
// blocks, or handed to another stream without a wait.
//
// Streams of other devices (StreamOfDevice) use its memory, too. Whoever waits for this device, or records behind all
// of it, does not wait for them.
//
// A driver in front of another one whose memory the host can read (HostDriver), and the fence of its streams. Streams
// are as torch's: none waits for the legacy default stream. Thread-safe; a launch blocks while too much is queued.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/driver/capture_gate.h"
#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/stream_fence.h"

namespace stalloc {

class QueuedDevice final : public ForwardingDriver, public StreamFence {
 public:
  // What is wrong with the device.
  struct Habits {
    double refuses = 0;               // share of Record and Wait calls that fail
    bool waits_do_nothing = false;    // Wait says yes, and nothing waits
    bool done_lies = false;           // Done says yes of work that is queued
    bool never_synchronizes = false;  // Synchronize returns at once
    bool ignores_others = false;      // SynchronizeOthers returns at once
    bool ignores_captures = false;    // Synchronize and RecordAll go ahead, and break them
    bool ignores_copies = false;      // what was to run behind the copies does not
    bool forgets_copies = false;      // whoever waits for copies returns at once
  };

  // `driver` outlives this.
  QueuedDevice(VmmDriver& driver, std::uint64_t seed, Habits habits);
  QueuedDevice(VmmDriver& driver, std::uint64_t seed) : QueuedDevice(driver, seed, Habits()) {}
  // Runs what is queued.
  ~QueuedDevice() override;

  // Work on [address, address + bytes) of a block.
  struct Kernel {
    Address address = 0;
    Bytes bytes = 0;            // a multiple of kBlockAlignment
    std::uint64_t expects = 0;  // the key that its last kernel wrote; 0: nothing was written
    std::uint64_t writes = 0;   // not 0
  };
  void Launch(StreamHandle stream, const Kernel& kernel);
  // The program makes `stream` wait for all that `behind` was given so far.
  void OrderBehind(StreamHandle stream, StreamHandle behind);

  // Bytes between [address, address + bytes), which must be usable when the copy runs, and the host; on a stream of its
  // own. What this device is given after PutBehindCopies runs behind the copies before it. Streams of other devices do
  // not, so where there are any the host waits.
  void Copy(Address address, std::byte* host, Bytes bytes, bool to_host);
  [[nodiscard]] std::uint64_t copies_given();
  // The first so many of them.
  void AwaitCopies(std::uint64_t count);
  void PutBehindCopies();

  // From now on Fill asks first, and fails where the answer is false. Null: it does not ask.
  void OnFill(std::function<bool(Address, Bytes)> may_fill);

  // While it is captured, nothing can be recorded on the stream, and it cannot wait; nor can anybody wait for the
  // device, or record behind all of it.
  void BeginCapture(StreamHandle stream);
  void EndCapture(StreamHandle stream);

  DriverStatus Reserve(Bytes bytes, Address* address) noexcept override;
  DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept override;
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override;
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override;
  DriverStatus Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept override;
  DriverStatus Synchronize() noexcept override;
  DriverStatus SynchronizeOthers() noexcept override;

  Event Record(StreamHandle stream) noexcept override;
  Event RecordAll() noexcept override;
  bool Wait(StreamHandle stream, Event event) noexcept override;
  bool Done(Event event) noexcept override;
  bool Await(Event event) noexcept override;
  void Recycle(Event event) noexcept override;

  // What was wrong, the first of it in words.
  struct Findings {
    std::uint64_t unmapped = 0;  // kernels and copies whose memory was not usable, or went while they were queued
    std::uint64_t damaged = 0;   // that found other bytes than their block's
    std::uint64_t events = 0;    // uses of events that were recycled
    std::uint64_t broken = 0;    // captures
    std::string first;
    [[nodiscard]] std::uint64_t count() const { return unmapped + damaged + events + broken; }
  };
  [[nodiscard]] Findings GetFindings() const;
  // Kernels and waits that have run.
  [[nodiscard]] std::uint64_t operations() const;

 private:
  // Of one stream, its work up to a position.
  struct Point {
    std::size_t stream = 0;
    std::uint64_t position = 0;
  };
  struct Operation {
    Kernel kernel;              // none if it writes nothing
    std::byte* host = nullptr;  // of a copy of the kernel's bytes
    bool to_host = false;
    std::optional<unsigned char> fill = std::nullopt;  // of the kernel's bytes
    std::vector<Point> behind;                         // of a wait
  };
  struct Stream {
    std::deque<Operation> queue;
    std::uint64_t given = 0;  // operations, ever
    std::uint64_t done = 0;
    bool of_other = false;  // device
    bool captured = false;
    bool slow = false;  // for now
  };

  [[nodiscard]] std::size_t IndexOf(StreamHandle stream);
  [[nodiscard]] std::vector<Point> PointsOf(StreamHandle stream);
  [[nodiscard]] bool IsOver(const std::vector<Point>& points) const;
  void Give(std::unique_lock<std::mutex>& lock, std::size_t stream, Operation operation);
  [[nodiscard]] bool Happens(double share) { return std::uniform_real_distribution<double>()(random_) < share; }
  void Work();
  [[nodiscard]] bool RunSome();
  [[nodiscard]] bool RunNext(Stream& stream);
  void Run(const Kernel& kernel);
  void RunCopy(const Operation& copy);
  void RunFill(const Kernel& range, unsigned char value);
  void FindQueuedIn(Address address, Bytes bytes);
  void Find(std::uint64_t* kind, const std::string& text);
  void Find(std::uint64_t* kind, const char* what, const Kernel& kernel, Bytes at);
  [[nodiscard]] std::uint8_t* PageOf(Address address);

  // Of this device's streams, or those of the others.
  [[nodiscard]] std::vector<Point> AllPoints(bool of_others) const;
  void AwaitLocked(std::unique_lock<std::mutex>& lock, const std::vector<Point>& points);
  void BreakCaptures();

  const Habits habits_;
  const Bytes page_;
  CaptureGate captures_;
  mutable std::mutex mutex_;
  std::condition_variable work_;  // there is some, or somebody waits
  std::condition_variable progress_;
  std::mt19937_64 random_;
  std::map<std::pair<StreamHandle, std::thread::id>, std::size_t> names_;  // the per-thread stream has a thread
  std::deque<Stream> streams_;
  std::map<Event, std::vector<Point>> events_;
  std::vector<Point> behind_;  // what is given now
  Event last_event_ = 0;
  std::map<Address, std::vector<std::uint8_t>> usable_;  // by reservation, a page each
  std::size_t queued_ = 0;
  int waiting_ = 0;  // for progress
  bool stops_ = false;
  std::function<bool(Address, Bytes)> may_fill_;
  std::uint64_t operations_ = 0;
  Findings findings_;
  std::thread worker_;
};

}  // namespace stalloc
