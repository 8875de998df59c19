#include "allocator/record/recorder.h"

#include <atomic>
#include <utility>

#include "allocator/base/clock.h"
#include "allocator/base/log.h"
#include "allocator/record/event_ring.h"
#include "allocator/record/fork_watch.h"
#include "allocator/record/mark_table.h"
#include "allocator/record/text_table.h"
#include "allocator/record/trace_writer_thread.h"

namespace stalloc {
namespace {

// Names a thread for the life of the process, over all recorders. The writer converts tokens to ordinals of its file.
std::uint32_t ThreadToken() noexcept {
  static std::atomic<std::uint32_t> next{0};
  static thread_local std::uint32_t token = 0;
  if (token == 0) token = next.fetch_add(1, std::memory_order_relaxed) + 1;
  return token;
}

std::uint64_t Address(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

// All that a recorder owns. Apart from RecorderImpl because a forked child has to leave it as it is: its mutexes may be
// held and its tables half changed by threads that do not exist there.
class Core final : public ForkWatch {
 public:
  explicit Core(const RecorderOptions& options)
      : ring_(options.ring_events),
        stacks_(OpenStacks(options.stacks)),
        writer_(&ring_, &marks_, &texts_, stacks_.get(),
                {.chunk_events = options.chunk_events == 0 ? 1 : options.chunk_events,
                 .max_events = options.max_events,
                 .waits = options.waits}) {}

  [[nodiscard]] Status Start(const RecorderOptions& options) {
    if (Status started = writer_.Start(options.path, options.fingerprint); !started.ok()) return started;
    StartWatching();
    active_.store(true, std::memory_order_release);
    return Ok{};
  }

  void Close() {
    if (!active_.exchange(false, std::memory_order_acq_rel)) return;
    writer_.Stop();
    StopWatching();  // last: a child that is forked meanwhile must know that the thread is not its own
  }

  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool in_child() const noexcept { return in_child_; }
  [[nodiscard]] EventRing& ring() noexcept { return ring_; }
  [[nodiscard]] const EventRing& ring() const noexcept { return ring_; }
  // Null: none are taken.
  [[nodiscard]] PythonStacks* stacks() noexcept { return stacks_.get(); }
  [[nodiscard]] MarkTable& marks() noexcept { return marks_; }
  [[nodiscard]] TextTable& texts() noexcept { return texts_; }
  [[nodiscard]] TraceWriterThread& writer() noexcept { return writer_; }
  [[nodiscard]] const TraceWriterThread& writer() const noexcept { return writer_; }

  void BeforeFork() noexcept override { writer_.Flush(); }
  void InChild() noexcept override {
    active_.store(false, std::memory_order_relaxed);
    in_child_ = true;
    writer_.AbandonInChild();
  }

 private:
  std::unique_ptr<PythonStacks> OpenStacks(const StackSampling& sampling) {
    if (!sampling.any()) return nullptr;
    Result<std::unique_ptr<PythonStacks>> opened = PythonStacks::Open(&texts_, sampling);
    if (opened.ok()) return std::move(opened).value();
    Log(LogSeverity::kWarning, "no stacks in the trace (STALLOC_TRACE_STACKS): %s", opened.error().c_str());
    return nullptr;
  }

  std::atomic<bool> active_{false};
  bool in_child_ = false;
  EventRing ring_;
  MarkTable marks_;
  TextTable texts_;
  const std::unique_ptr<PythonStacks> stacks_;
  TraceWriterThread writer_;
};

class RecorderImpl final : public Recorder {
 public:
  explicit RecorderImpl(std::unique_ptr<Core> core) : core_(std::move(core)) {}
  ~RecorderImpl() override {
    Close();
    if (core_->in_child()) static_cast<void>(core_.release());  // the fork watch's list keeps it reachable
  }

  void Allocated(DeviceIndex device, const void* pointer, Bytes requested, StreamHandle stream,
                 std::uint32_t flags) noexcept override {
    if (pointer == nullptr || !core_->active()) return;
    PythonStacks* const stacks = core_->stacks();
    const std::uint32_t stack = stacks == nullptr ? 0 : stacks->Capture(requested);
    Push(RecordedKind::kAlloc, Address(pointer), requested, stream, flags, device, stack);
  }

  void Freed(const void* pointer) noexcept override {
    if (pointer == nullptr) return;
    Push(RecordedKind::kFree, Address(pointer), 0, 0, 0, 0);
  }

  void StreamRecorded(const void* pointer, StreamHandle stream) noexcept override {
    Push(RecordedKind::kRecordStream, Address(pointer), 0, stream, 0, 0);
  }

  void Marked(const Mark& mark) override {
    if (!core_->active()) return;
    Push(RecordedKind::kMark, core_->marks().Put(mark), 0, 0, 0, 0);
    if (mark.kind == MarkKind::kIteration || mark.edge == MarkEdge::kEnd) core_->ring().WakeConsumer();
  }

  void Held(DeviceIndex device, Bytes bytes) noexcept override { Push(RecordedKind::kHeld, 0, bytes, 0, 0, device); }

  [[nodiscard]] std::uint32_t Text(std::string_view text) override { return core_->texts().Number(text); }

  void Named(const void* block, const TensorPlace& tensor) noexcept override {
    Core& core = *core_;
    if (!core.active()) return;
    core.ring().Push({.subject = Address(block),
                      .value = tensor.bytes,
                      .stream = tensor.offset,
                      .time_ns = 0,
                      .thread = tensor.name,
                      .flags = static_cast<std::uint32_t>(tensor.role),
                      .device = 0,
                      .stack = 0,
                      .kind = RecordedKind::kTensor});
  }

  void Used(const void* block, UseKind kind, std::int64_t began_ns, std::uint32_t operation) noexcept override {
    Core& core = *core_;
    if (!core.active()) return;
    core.ring().Push({.subject = Address(block),
                      .value = static_cast<std::uint64_t>(began_ns),
                      .stream = 0,
                      .time_ns = 0,
                      .thread = operation,
                      .flags = static_cast<std::uint32_t>(kind),
                      .device = 0,
                      .stack = 0,
                      .kind = RecordedKind::kUse});
  }

  void Begin() override {
    Push(RecordedKind::kBegin, 0, 0, 0, 0, 0);
    core_->ring().WakeConsumer();
  }

  void UpdateFingerprint(const Fingerprint& fingerprint) override {
    if (core_->active()) core_->writer().UpdateFingerprint(fingerprint);
  }

  void Flush() override {
    if (core_->active()) core_->writer().Flush();
  }

  void Close() override { core_->Close(); }

  [[nodiscard]] Counters GetCounters() const override {
    Counters counters;
    if (core_->in_child()) return counters;
    counters.events = core_->ring().tail();
    counters.blocked = core_->ring().blocked();
    counters.unpaired = core_->writer().unpaired();
    counters.write_error = core_->writer().write_error();
    return counters;
  }

 private:
  void Push(RecordedKind kind, std::uint64_t subject, std::uint64_t value, StreamHandle stream, std::uint32_t flags,
            DeviceIndex device, std::uint32_t stack = 0) noexcept {
    Core& core = *core_;
    if (!core.active()) return;
    core.ring().Push({.subject = subject,
                      .value = value,
                      .stream = stream,
                      .time_ns = MonotonicNanoseconds(),
                      .thread = ThreadToken(),
                      .flags = flags,
                      .device = device,
                      .stack = stack,
                      .kind = kind});
  }

  std::unique_ptr<Core> core_;
};

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::Open(RecorderOptions options) {
  auto core = std::make_unique<Core>(options);
  if (const Status started = core->Start(options); !started.ok()) return Error{started.error()};
  return std::unique_ptr<Recorder>(std::make_unique<RecorderImpl>(std::move(core)));
}

}  // namespace stalloc
